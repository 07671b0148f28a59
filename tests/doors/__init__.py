"""Runs unmodified clients of other servers against the doors."""
