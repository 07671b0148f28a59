"""The logs of every release, as the release's own processes wrote them, and the test that today's code folds these logs
to the same state."""
