"""What users install: the distributions, built and installed outside the clone."""
