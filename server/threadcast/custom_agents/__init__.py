"""Agents that operators write. An agent answers the chats of one profile in place of a model."""
