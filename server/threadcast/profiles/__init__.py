"""Profiles: what an assistant may do in a chat, by the chat's profile and scope, and its system prompt."""
