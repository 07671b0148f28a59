"""The logs of every release, as its own processes wrote them, and the proof that today's code folds them to the same
state."""
