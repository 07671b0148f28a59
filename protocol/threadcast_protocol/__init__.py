"""The protocol of Threadcast: its commands and events, their meaning, and their encoding.

The package is pure: it uses no clock, no network, no random numbers and no `async`. It imports only the standard
library and msgspec. Server and clients import this package. PROTOCOL.md describes the protocol.
"""
