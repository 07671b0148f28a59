"""The single writer: finds chats with work, owns them one at a time each, and writes what happens into their logs."""
