"""Endpoints in the formats of other servers: one-shot requests (PROTOCOL §14), and the calls of a foreign GUI at its
start (PROTOCOL §13).

For each one-shot format there is a `Projection`, a pure class that turns the events of one run into frames.
`compat/oneshot.py` passes it the events and sends the frames. A projection stores only the content that it has already
sent.
"""
