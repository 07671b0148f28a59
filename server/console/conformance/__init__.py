"""`threadcast conformance URL`: plays the transcripts against any server that speaks this protocol over HTTP.

It knows the public wire and nothing of our server; PROTOCOL.md and `tests/conformance/*.json` are its only sources.
`report.py` is what the command line calls; tests play single transcripts with `player.play`.
"""
