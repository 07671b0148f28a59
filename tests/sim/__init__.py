"""Seeded schedules: the real actor, relay and decider under faults, on virtual time and an in-memory store."""
