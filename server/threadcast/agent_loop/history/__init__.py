"""Builds the history that a model reads: a shortened and summarised view of the chat, and a request that contains
it."""
