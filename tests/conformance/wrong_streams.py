"""Mutations of event streams: of their framing, numbers, resumption and events."""

import json
import re
from collections.abc import Iterable

from tests.conformance.breaking import (
    EventChange,
    Json,
    changed,
    events,
    header,
    is_chats,
    is_feed,
    lost,
    mapped,
    query,
    replacing,
    twice,
    units,
    without_query,
)
from tests.conformance.proxy import Mutation, Request, UnitChange

__all__ = ["STREAMS"]

PLAIN = ("plain-turn",)
SEVERAL = ("several-chats",)


def _no_heartbeat(after: int) -> UnitChange:
    """Passes only the first `after` heartbeats, each with the empty line that may follow."""
    count = 0
    is_dropping = False

    def unit(data: bytes) -> Iterable[bytes]:
        nonlocal count, is_dropping
        if data.startswith(b": hb"):
            count += 1
            is_dropping = count > after
        elif data != b"\n":
            is_dropping = False
        if not is_dropping:
            yield data

    return unit


def _with_ids(position: int, base: int) -> EventChange:
    """Moves the position and the base in the id of a stream of one chat."""

    def change(event: Json, event_id: str | None) -> Iterable[tuple[Json, str | None]]:
        found = re.fullmatch(r"(\d+)-(\d+)-(\d+)", event_id or "")
        if found:
            event_id = f"{found[1]}-{int(found[2]) + position}-{int(found[3]) + base}"
        yield event, event_id

    return change


def _one_count() -> EventChange:
    """Numbers the events of all chats of a stream together."""
    count = 0

    def change(event: Json, event_id: str | None) -> Iterable[tuple[Json, str | None]]:
        nonlocal count
        if "seq" in event and event["seq"] != "0":
            count += 1
            event["seq"] = str(count)
        yield event, event_id

    return change


def _seq_from_one(event: Json) -> None:
    if "seq" in event:
        event["seq"] = str(int(event["seq"]) + 1)


def _seq_as_number(event: Json) -> None:
    if "seq" in event:
        event["seq"] = int(event["seq"])


def _hole() -> EventChange:
    is_first = True

    def change(event: Json, event_id: str | None) -> Iterable[tuple[Json, str | None]]:
        nonlocal is_first
        if not is_first or event["type"] == "snapshot":
            yield event, event_id
        is_first = False

    return change


def _first_chat_alone(request: Request) -> EventChange:
    first = request.query.get("chat_id", [""])[0]

    def change(event: Json, event_id: str | None) -> Iterable[tuple[Json, str | None]]:
        if event.get("chat_id") == first:
            yield event, event_id

    return change


def _swapped() -> EventChange:
    """Sends the final form of an answer before `stream_finished`, with correct numbers."""
    held: tuple[Json, str | None] | None = None

    def change(event: Json, event_id: str | None) -> Iterable[tuple[Json, str | None]]:
        nonlocal held
        if event["type"] == "stream_finished":
            held = (event, event_id)
        elif held is not None:
            before, held = held, None
            yield {**event, "seq": before[0]["seq"]}, before[1]
            yield {**before[0], "seq": event["seq"]}, event_id
        else:
            yield event, event_id

    return change


def _another_text(event: Json) -> None:
    if event["type"] == "message_added" and event["message"]["role"] == "assistant":
        event["message"]["content"] = "You said: something"


def _ascii(event: Json) -> None:
    event.update(json.loads(re.sub(r"[^\x00-\x7f]+", "?", json.dumps(event, ensure_ascii=False))))


def _tools_without_input(event: Json) -> None:
    for call in event["runtime"].get("tools", []) if event["type"] == "snapshot" else ():
        call.pop("input", None)


def _presence(event: Json) -> None:
    if event["type"] == "presence":
        event["count"] += 1


def _feed_reversed(event: Json) -> None:
    if event["type"] == "feed_snapshot":
        event["chats"].reverse()


def _other_chat(event: Json) -> None:
    if "chat_id" in event:
        event["chat_id"] = "conformance-other"


def _deaf_presence() -> EventChange:
    """Drop the presence events of readers who disconnect."""
    most = 0

    def change(event: Json, event_id: str | None) -> Iterable[tuple[Json, str | None]]:
        nonlocal most
        if event["type"] == "presence":
            if event["count"] < most:
                return
            most = event["count"]
        yield event, event_id

    return change


def _no_place(request: Request) -> None:
    request.headers.pop("last-event-id", None)
    without_query(request, "from")


def _no_place_of_several(request: Request) -> None:
    if len(request.query.get("chat_id", [])) > 1:
        _no_place(request)


def _one_back(request: Request) -> None:
    """Resume one event too early."""
    place = request.headers.get("last-event-id") or request.query.get("from", [""])[0]
    found = re.fullmatch(r"(\d+)-(\d+)-(\d+)", place)
    if found and int(found[2]) > int(found[3]):
        earlier = f"{found[1]}-{int(found[2]) - 1}-{found[3]}"
        if "last-event-id" in request.headers:
            request.headers["last-event-id"] = earlier
        query(request, **{"from": earlier})


def _any_stream(request: Request) -> bool:
    return request.method == "GET"


def _resumes(request: Request) -> bool:
    return is_chats(request) and ("last-event-id" in request.headers or "from" in request.query)


_ID_FIRST = replacing(rb"(data: .*\n)(id: .*\n)", rb"\2\1")
_NAMED = replacing(rb'\A(?=data: .*?"type":"(\w+)")', rb"event: \1\n")
_SPLIT_DATA = replacing(rb'^(data: \{"chat_id":"[^"]+",)', rb"\1\ndata: ")
_COMMENT_INSIDE = replacing(rb"^(data: .*\n)(id: )", rb"\1: hb 1763690000\n\2")
_LATIN = replacing(rb"\xc5\xbe", b"\xbe")
_UNNUMBERED = replacing(rb"(?m)^id: .*\n", b"")


STREAMS: dict[str, Mutation] = {
    "id-before-data": Mutation(
        "the id line comes before the data line", PLAIN, unit=units(is_chats, lambda: _ID_FIRST)
    ),
    "event-names": Mutation("events name their type in an `event:` line", PLAIN, unit=units(is_chats, lambda: _NAMED)),
    "data-on-two-lines": Mutation(
        "an event's JSON is split over two data lines", PLAIN, unit=units(is_chats, lambda: _SPLIT_DATA)
    ),
    "carriage-returns": Mutation("lines end in CR LF", PLAIN, unit=units(is_chats, lambda: replacing(rb"\n", b"\r\n"))),
    "comment-inside-event": Mutation(
        "a comment is between an event's data and its id", PLAIN, unit=units(is_chats, lambda: _COMMENT_INSIDE)
    ),
    "ascii-on-streams": Mutation(
        "every character of a stream that is not ASCII becomes ?",
        ("unicode",),
        unit=events(is_chats, lambda _: mapped(_ascii)),
    ),
    "latin-1-on-streams": Mutation(
        "a stream has a byte that is not UTF-8", ("oneshot-openai", "unicode"), unit=units(is_chats, lambda: _LATIN)
    ),
    "no-ids": Mutation("events have no id", PLAIN, unit=units(is_chats, lambda: _UNNUMBERED)),
    "no-heartbeat": Mutation("no heartbeat ever comes", PLAIN, unit=units(_any_stream, lambda: _no_heartbeat(0))),
    "one-heartbeat": Mutation(
        "no heartbeat comes after the first one", ("heartbeats",), unit=units(_any_stream, lambda: _no_heartbeat(1))
    ),
    "heartbeat-in-words": Mutation(
        "a heartbeat has no unix seconds", PLAIN, unit=units(is_chats, lambda: replacing(rb"^: hb .*", b": hb now"))
    ),
    "heartbeat-with-empty-line": Mutation(
        "an empty line follows a heartbeat and ends an empty event",
        PLAIN,
        unit=units(is_chats, lambda: replacing(rb"^(: hb .*\n)", rb"\1\n")),
    ),
    "no-early-retry": Mutation(
        "no `retry` comes before the first heartbeat",
        PLAIN,
        unit=units(is_chats, lambda: replacing(rb"^retry: .*\n", b"")),
    ),
    "slow-retry": Mutation(
        "browsers are told to come back after three seconds",
        PLAIN,
        unit=units(is_chats, lambda: replacing(rb"^retry: 500\n", b"retry: 3000\n")),
    ),
    "resumes-silently": Mutation(
        "a resumed stream does not begin with a heartbeat",
        PLAIN,
        unit=units(_resumes, lambda: replacing(rb"^(: hb|retry:) .*\n", b"")),
    ),
    "no-cache-control": Mutation("streams have no Cache-Control", PLAIN, answer=header("cache-control", None)),
    "stored-by-proxies": Mutation(
        "streams may be stored: Cache-Control: public, max-age=60",
        PLAIN,
        answer=header("cache-control", "public, max-age=60"),
    ),
    "buffered-by-proxies": Mutation(
        "streams have no X-Accel-Buffering", PLAIN, answer=header("x-accel-buffering", None)
    ),
    "stream-as-text": Mutation("streams are text/plain", PLAIN, answer=header("content-type", "text/plain")),
    "position-ahead": Mutation(
        "ids of events are one position ahead, base and all", PLAIN, unit=events(is_chats, lambda _: _with_ids(1, 1))
    ),
    "position-without-base": Mutation(
        "the position in ids is one too high for its base", PLAIN, unit=events(is_chats, lambda _: _with_ids(1, 0))
    ),
    "seq-from-one": Mutation("seq counts from 1", PLAIN, unit=events(is_chats, lambda _: mapped(_seq_from_one))),
    "seq-as-number": Mutation("seq is a number", PLAIN, unit=events(is_chats, lambda _: mapped(_seq_as_number))),
    "one-count-for-all": Mutation(
        "two chats of a stream share one count of seq", SEVERAL, unit=events(is_chats, lambda _: _one_count())
    ),
    "first-chat-alone": Mutation(
        "a stream of several chats carries only the first", SEVERAL, unit=events(is_chats, _first_chat_alone)
    ),
    "events-of-another": Mutation(
        "events name another chat", PLAIN, unit=events(is_chats, lambda _: mapped(_other_chat))
    ),
    "chat-removed-untold": Mutation(
        "the removal of a chat from a stream is not reported",
        ("several-chats-one-deleted", "named-stream"),
        unit=events(is_chats, lambda _: lost("chat_removed")),
    ),
    "never-resumes": Mutation("a stream never resumes; it begins with a snapshot", PLAIN, request=_no_place),
    "resumes-by-query-alone": Mutation(
        "Last-Event-ID is ignored", PLAIN, request=lambda request: request.headers.pop("last-event-id", None)
    ),
    "resumes-by-header-alone": Mutation(
        "?from= is ignored", PLAIN, request=lambda request: without_query(request, "from")
    ),
    "several-never-resume": Mutation(
        "streams of several chats never resume", ("several-chats-resumed",), request=_no_place_of_several
    ),
    "resumes-too-early": Mutation("a resumed stream repeats the last event", PLAIN, request=_one_back),
    "resumes-with-a-hole": Mutation(
        "a resumed stream loses its first event", PLAIN, unit=events(_resumes, lambda _: _hole())
    ),
    "streams-never-end": Mutation(
        "a stream that should end stays open", ("named-stream-replaced", "several-chats-one-deleted"), never_ends=True
    ),
    "delta-lost": Mutation("deltas are lost", PLAIN, unit=events(is_chats, lambda _: lost("stream_delta"))),
    "delta-twice": Mutation("deltas come twice", PLAIN, unit=events(is_chats, lambda _: twice("stream_delta"))),
    "ack-lost": Mutation("acks are lost", PLAIN, unit=events(is_chats, lambda _: lost("ack"))),
    "message-lost": Mutation("final messages are lost", PLAIN, unit=events(is_chats, lambda _: lost("message_added"))),
    "no-outcome": Mutation(
        "a run ends without an outcome",
        PLAIN,
        unit=events(is_chats, lambda _: changed("runtime_updated", outcome=None)),
    ),
    "wrong-finish-reason": Mutation(
        "every answer ends with finish_reason length",
        PLAIN,
        unit=events(is_chats, lambda _: changed("stream_finished", finish_reason="length")),
    ),
    "index-off-by-one": Mutation(
        "messages are added at another index",
        PLAIN,
        unit=events(is_chats, lambda _: changed("message_added", index=7)),
    ),
    "finished-too-late": Mutation(
        "an answer's final form comes before stream_finished", PLAIN, unit=events(is_chats, lambda _: _swapped())
    ),
    "final-text-differs": Mutation(
        "the final message differs from its deltas",
        PLAIN,
        unit=events(is_chats, lambda _: mapped(_another_text)),
    ),
    "tools-without-input": Mutation(
        "a snapshot lacks the input of running calls",
        ("join-while-a-tool-runs",),
        unit=events(is_chats, lambda _: mapped(_tools_without_input)),
    ),
    "feed-keeps-deleted": Mutation(
        "the feed does not report a deleted chat", ("feed",), unit=events(is_feed, lambda _: lost("chat_removed"))
    ),
    "feed-reversed": Mutation(
        "the feed begins with the oldest chats", ("feed",), unit=events(is_feed, lambda _: mapped(_feed_reversed))
    ),
    "feed-unnumbered": Mutation(
        "the frames of a feed all have seq 0",
        ("feed",),
        unit=events(is_feed, lambda _: mapped(lambda event: event.update(seq="0"))),
    ),
    "presence-one-too-many": Mutation(
        "presence counts one reader too many", ("presence",), unit=events(is_chats, lambda _: mapped(_presence))
    ),
    "presence-forgets-to-leave": Mutation(
        "the departure of a reader is not reported", ("presence",), unit=events(is_chats, lambda _: _deaf_presence())
    ),
    "never-inline": Mutation(
        "blobs=inline is ignored", ("blobs-in-messages",), request=lambda request: without_query(request, "blobs")
    ),
}
