"""What stands behind each subcommand of `threadcast`: one file for each, and what the terminal client is made of.

Called `console` because "command" is already the word for what a client asks of a chat.
"""
