"""Agents of other frameworks: one module for each framework, which imports the framework itself."""
