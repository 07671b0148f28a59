"""Foreign one-shot wires as pure functions from a run's events to frames (PROTOCOL §14).

Each file is one wire. None knows HTTP, the store or the clock: `server/api/oneshot.py` feeds a projection the events of
one run and writes what comes out. The one rule: a projection holds nothing but what it has shown of its own run.
"""
