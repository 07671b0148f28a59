"""The history that a model reads: a shortened and summarised view of the chat, and the request made from it."""
