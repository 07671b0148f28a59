"""Who asks. Every request resolves to a Principal; the inbox entry carries it, events show its id (DESIGN §11)."""

import msgspec

__all__ = ["LOCAL", "SYSTEM", "Principal"]


class Principal(msgspec.Struct, frozen=True, omit_defaults=True):
    """`id` owns chats and is shown in events; `permissions` and `roles` are the operator's words, never the client's.

    Permissions say what one may do with the server, roles who one is to the tools and prompts of a profile (CTX-7).
    Both sorted, so that every process writes the same bytes of the same principal into a log.
    """

    id: str
    permissions: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()


LOCAL = Principal("local", ("approve", "diagnostics"))
"""The single caller of a server without configured tokens, which binds to loopback only."""

SYSTEM = Principal("system")
"""The server itself; HTTP never resolves to it."""
