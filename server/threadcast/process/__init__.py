"""The processes of the server: their start, supervision, measurement and end."""
