"""Sends chats to their readers: folds each watched chat once and sends the same bytes to every reader."""
