"""Turns a model's stream into an answer: collects deltas, finishes the message, and cleans it at the end of the run."""
