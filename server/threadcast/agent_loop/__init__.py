"""The agent, which carries out the rounds of a run. The package imports neither Redis nor HTTP. The actor gives the
agent access to the chat through a `ChatPort`."""
