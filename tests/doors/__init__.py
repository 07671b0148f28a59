"""Clients of other servers, unpatched, against the doors."""
