"""The bodies of HTTP requests, responses and streams: commands, events, messages and errors, with their checks."""
