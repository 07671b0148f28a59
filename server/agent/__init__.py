"""The agent: what happens inside a run. It knows neither Redis nor HTTP; the actor lends it a way to commit."""
