"""OpenAI's Responses and Conversations, on the chats of this server."""
