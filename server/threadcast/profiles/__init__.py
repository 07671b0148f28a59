"""Profiles determine the rights and the system prompt of an assistant in a chat, by the chat's profile and scope."""
