"""The examples, run by the commands of their own pages. Each command must print what the page shows."""
