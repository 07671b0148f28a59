"""The authenticated caller. Every request resolves to a Principal; inbox entries contain the Principal, events show its
id (DESIGN §11)."""

import msgspec

__all__ = ["LOCAL", "SYSTEM", "Principal"]


class Principal(msgspec.Struct, frozen=True, omit_defaults=True):
    """An authenticated caller. `id` owns chats and is shown in events. `permissions` and `roles` are set by the
    operator, never by the client.

    Permissions define what the caller may do with the server. Roles describe the caller to the tools and prompts of a
    profile (CTX-7). `approves_for` are the callers for whom this caller approves calls that need an approver other than
    the requester (PROTOCOL §11). These three lists are sorted, so that every process encodes the same principal as the
    same bytes.
    """

    id: str
    permissions: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    approves_for: tuple[str, ...] = ()


LOCAL = Principal("local", ("approve", "diagnostics"))
"""The only caller of a server without configured tokens. Such a server listens on the loopback interface only."""

SYSTEM = Principal("system")
"""The server itself. No HTTP request resolves to this principal."""
