"""Kills the owners of durable agents with kill -9 at random moments, and judges the runs."""
