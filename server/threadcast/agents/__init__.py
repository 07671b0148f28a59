"""Agents of other frameworks. Each framework has a module of its own, which imports the framework."""
