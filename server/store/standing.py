"""Where a store stands that is more than one server: what answers, and what of it is away.

It asks nobody; `Store.ping` fills it, `/readyz` and `doctor` show it. The rule: what stands here a person can act on.
"""

import msgspec

__all__ = ["Standing"]


class Standing(msgspec.Struct, frozen=True, omit_defaults=True):
    """Empty for a store of one server at one address."""

    primary: str | None = None
    """Behind Sentinel: the address that it has now."""

    nodes: tuple[str, ...] = ()
    """Of a Cluster: the addresses of its primaries."""

    away: tuple[str, ...] = ()
    """A sentence for each of them that takes no writes just now; the chats of the others go on."""

    def __str__(self) -> str:
        """How it continues "it answers"; "" when there is nothing to add."""
        if self.primary is not None:
            return f"; the sentinels name {self.primary} as its primary"
        return f"; the nodes of the Cluster are {', '.join(self.nodes)}" if self.nodes else ""
