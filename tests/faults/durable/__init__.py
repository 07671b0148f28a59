"""Kills the owners of durable agents by kill -9 at random moments, and judges the runs."""
