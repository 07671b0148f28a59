"""The rules for calls that a client or a sub-chat carries out (PROTOCOL §12), as pure functions.

- A call has one result: the text of the accepted answer, or the reason why no answer was accepted.
- A claim keeps other editors away until the claim lapses.
- A sub-chat begins once, ends once and rests in the end; its last answer is the result of the call that waited for it.
- A sub-chat whose beginning was given up as poison never begins, and the call that waited for it fails.

The functions read the logs of parent and child and the editors' posts; `verdict.py` calls them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

import msgspec

from tests.torture.evidence import Asked
from tests.torture.history import Reading
from threadcast.chat.ide import CLAIM_MS
from threadcast_protocol.wire.events import AT_REST

__all__ = ["Wrong", "wrong_children", "wrong_client_calls"]

CLIENT_TOOLS = frozenset({"open_file", "open_quickly"})


class Wrong(NamedTuple):
    """A broken rule: a `Violation` without its chat."""

    kind: str
    subject: str
    words: str


class _Result(msgspec.Struct):
    tool_call_id: str
    content: str


_results = msgspec.json.Decoder(_Result)


def wrong_client_calls(reading: Reading, commands: Iterable[Asked]) -> Iterator[Wrong]:
    """Return each broken rule about the client tools of one chat. A model may reuse a call's id after the call's
    message was removed, so results are counted."""
    accepted: dict[str, Counter[str]] = defaultdict(Counter)
    for asked in commands:
        if asked.type == "ide_tool_result" and reading.acks.get(asked.request_id, [])[-1:] == [True]:
            answer = _results.decode(asked.body)
            accepted[answer.tool_call_id][answer.content] += 1
    shown: dict[str, Counter[str]] = defaultdict(Counter)
    for result in reading.results.values():
        if result.tool_name in CLIENT_TOOLS:
            shown[result.call_id][result.text] += result.was_asked or not result.has_failed
            if not result.has_failed and result.text not in accepted[result.call_id]:
                yield Wrong("client tool", result.call_id, f"nobody's answer was accepted, and it says {result.text!r}")
    for call_id, answers in accepted.items():
        for text, count in answers.items():
            if shown[call_id][text] != count:
                words = f"{text!r} was accepted {count} times, and stands {shown[call_id][text]} times in the chat"
                yield Wrong("client tool", call_id, words)
    for call_id, count in reading.required.items():
        if (found := shown[call_id].total()) != count:
            yield Wrong("client tool", call_id, f"it was asked for {count} times, and has {found} results")
    yield from _wrong_claims(reading)


def _wrong_claims(reading: Reading) -> Iterator[Wrong]:
    for call_id, claims in reading.claims.items():
        for (holder, held_until_ms), (claimer, until_ms) in pairwise(claims):
            if claimer and holder and claimer != holder and until_ms - CLAIM_MS < held_until_ms:
                yield Wrong("client tool", call_id, f"{claimer} was given what {holder} had claimed")


def wrong_children(reading: Reading, readings: Mapping[str, Reading]) -> Iterator[Wrong]:
    """Return each broken rule about the sub-chats that this chat's tools began."""
    for child_id in reading.children:
        child = readings.get(child_id)
        if child is None:
            yield Wrong("child", child_id, "it was announced, and never began")
            continue
        if child.state not in AT_REST:
            yield Wrong("child", child_id, f"its parent rests, and it is {child.state}")
        prompts = len(child.said.get(f"prompt-{child_id}"[:128], ()))
        is_given_up = f"begin:{child_id}" in child.given_up
        if prompts != (0 if is_given_up else 1):
            yield Wrong("child", child_id, f"it was begun {prompts} times")
        ends = reading.ended.get(child_id, [])
        if not ends:  # an abort ended the call before the sub-chat ended, so no report was due
            if (answer := reading.answers.get(child_id)) is None or not answer.has_failed:
                yield Wrong("child", child_id, "its call has a result, and its parent was never told how it ended")
            elif f"stop:{child_id}" not in child.accepted:
                yield Wrong("child", child_id, "its call was given up, and nobody told it to stop")
            continue
        if len(ends) > 1:
            yield Wrong("child", child_id, f"its parent was told {len(ends)} times how it ended")
        outcome, text = ends[0]
        if is_given_up and outcome != "error":
            yield Wrong("child", child_id, f"it was given up before it began, and its parent was told {outcome!r}")
        if outcome == "complete" and text != child.last_text:
            yield Wrong("child", child_id, f"its parent was told {text[:200]!r}, and it says {child.last_text[:200]!r}")
        answer = reading.answers.get(child_id)
        if answer is not None and not answer.has_failed and answer.text != text:
            yield Wrong(
                "child", child_id, f"its call says {answer.text[:200]!r}, and it was heard to say {text[:200]!r}"
            )
