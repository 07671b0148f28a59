"""The law of order: commands of a chat are taken up in the order of their acceptance (DESIGN §4.5, PROTOCOL §9).

Acceptance is what the store says: the inbox id that `post` gave, kept beside the request id in the memory of ids, which
no actor writes. Taking up is what the log says: the first ack. And what waits in the queue is carried out first come
first served, those of priority and those that interrupt aside. Pure; `verdict.py` asks. A command that the store has
forgotten is passed over.
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
    """Request ids that came after a later one, each with a sentence. `taken_up` are request ids by their first ack,
    `spoken` those of user messages by their first place in the log."""
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
