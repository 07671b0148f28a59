"""What a model reads of a chat: the view, shortened and summed up, and the request made of it."""
