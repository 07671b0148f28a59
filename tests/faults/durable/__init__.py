"""kill -9 of the owners of durable agents at random moments: agents, people, kills, and the judgement."""
