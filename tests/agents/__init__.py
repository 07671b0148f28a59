"""Agents of other frameworks, served by `threadcast.agents`."""
