"""The store in process memory, for tests and simulation."""
