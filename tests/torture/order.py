"""Checks that commands of a chat are taken up in the order of their acceptance (DESIGN §4.5, PROTOCOL §9).

The store records the order of acceptance: its script `post` remembers the inbox id of each request id in a hash that no
actor writes. The log shows when a command is taken up: its first ack. Messages in the queue are carried out in order,
except those with priority and those that interrupt. Commands that the store has forgotten are skipped.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from tests.torture.evidence import Asked, InboxId

__all__ = ["out_of_order"]


class _Flags(msgspec.Struct):
    priority: bool = False
    interrupt: bool = False


_flags = msgspec.json.Decoder(_Flags)


def out_of_order(
    accepted: Mapping[str, InboxId], taken_up: Sequence[str], spoken: Sequence[str], commands: Iterable[Asked]
) -> Iterator[tuple[str, str]]:
    """Return the request ids that were taken up after a later request, each with a sentence that explains it.
    `taken_up` has request ids in the order of their first acks; `spoken` has the request ids of user messages in the
    order of the log."""
    for name, before in _late(accepted, taken_up):
        yield name, f"it was accepted before {before}, and taken up after it"
    plain = {asked.request_id for asked in commands if asked.type == "user_message" and not _goes_ahead(asked)}
    for name, before in _late(accepted, [name for name in spoken if name in plain]):
        yield name, f"it was accepted before {before}, and said after it"


def _late(accepted: Mapping[str, InboxId], names: Sequence[str]) -> Iterator[tuple[str, str]]:
    last, last_name = (0, 0), ""
    for name in names:
        at = accepted.get(name)
        if at is None:
            continue
        if at < last:
            yield name, last_name
        else:
            last, last_name = at, name


def _goes_ahead(asked: Asked) -> bool:
    flags = _flags.decode(asked.body)
    return flags.priority or flags.interrupt
