"""What becomes of a model's words: deltas, the finished message, its last word."""
