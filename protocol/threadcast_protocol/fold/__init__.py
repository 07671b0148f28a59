"""The state of a chat and the pure functions that fold events into it."""
