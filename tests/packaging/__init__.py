"""Tests of the distributions as users install them, built and installed outside the clone."""
