"""The ground the house stands on: what may be said, what it means, and how it looks as bytes.

Pure: no clock, no network, no chance, no `async`. It imports the standard library and msgspec, and nothing else.
Everybody above imports it; it imports none of them. The words are explained in PROTOCOL.md beside this file.
"""
