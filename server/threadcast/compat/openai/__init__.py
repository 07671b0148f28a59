"""OpenAI's Chat Completions, on the chats of this server."""
