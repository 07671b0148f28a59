"""Agents that operators write: each answers the chats of one profile in place of a model."""
