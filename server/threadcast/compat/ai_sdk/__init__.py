"""The AI SDK's UI messages and UI message stream (npm package `ai`, version 6), on the chats of this server."""
