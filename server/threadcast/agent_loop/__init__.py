"""The agent: carries out the rounds of a run. It imports neither Redis nor HTTP; the actor gives it a port to the
chat."""
