"""Runs unmodified clients of other servers' formats against the doors."""
