"""`threadcast conformance URL`: plays the transcripts against any server that speaks this protocol over HTTP.

The package uses only the public wire, as described in PROTOCOL.md and the files in `transcripts/`, and no other module
of the server. The command line calls `report.py`; tests play single transcripts with `player.play`.
"""
