"""Kills the owners of durable agents with kill -9 at random moments: the agents, the people, the kills, and the
judgement."""
