"""Modules that all packages of the server may import and that import none of them: error boundaries, deadlines,
telemetry, redaction, forks."""
