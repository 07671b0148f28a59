"""The Python client's stream: one endless stream over many broken connections (`Client.follow`)."""

import anyio
import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.client_harness import BROKEN, DOWN, QUICK, URL, Server, frame, refused, snapshot, stream
from threadcast_client import Client, Refused, RetryPolicy, Unreadable
from threadcast_client.backoff import Backoff
from threadcast_client.feed import FeedSnapshot, follow_feed
from threadcast_client.reading import Arrival, Missed, Reading
from threadcast_client.stream import Lost, Opened, StreamItem
from threadcast_client.wire import FAILING_PAUSE_MAX_SECONDS, Busy, Wire, trouble_of
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.framing.sse import Frame
from threadcast_protocol.wire.events import ThreadUpdated

pytestmark = pytest.mark.anyio

Seen = tuple[list[str], list[Opened | Lost]]


class _Enough(Exception):
    pass


async def watch(server: Server, count: int, last_event_id: str = "") -> Seen:
    """Return the first `count` events as `type seq id`, and the states of the connection meanwhile."""
    seen: list[str] = []
    changes: list[Opened | Lost] = []

    def take(item: StreamItem) -> None:
        if isinstance(item, Opened | Lost):
            changes.append(item)
        if isinstance(item, Arrival) and item.seq is not None:
            seen.append(f"{item.type} {item.seq} {item.event_id}")
            if len(seen) == count:
                raise _Enough

    with anyio.fail_after(30), pytest.raises(_Enough):
        async with Client(URL, retry_policy=QUICK, transport=server) as client:
            await client.follow("c1", take, last_event_id=last_event_id)
    return seen, changes


def said(changes: list[Opened | Lost]) -> list[str]:
    return [change.reason if isinstance(change, Lost) else "open" for change in changes]


async def test_a_broken_line_is_resumed_where_it_stopped_and_nothing_comes_twice() -> None:
    server = Server(stream(snapshot(), frame(1), BROKEN), DOWN, stream(frame(2), frame(3), "hold"))
    seen, changes = await watch(server, 4)
    assert seen == [
        "snapshot 0 5-10-10", "pause_cleared 1 5-11-10", "pause_cleared 2 5-12-10", "pause_cleared 3 5-13-10",
    ]  # fmt: skip
    assert server.asked_from == [None, "5-11-10", "5-11-10"]
    assert said(changes) == ["open", "the connection broke", "the server does not answer", "open"]


@pytest.mark.parametrize(
    ("status", "asked", "seconds"),
    [
        (503, "7", 7.0),
        (503, "3600", FAILING_PAUSE_MAX_SECONDS),
        (429, "3600", 3600.0),
        (502, "²", 0.0),
        (503, "soon", 0.0),
    ],
)
def test_a_quota_may_ask_for_long_and_a_failing_server_for_a_minute_at_most(
    status: int, asked: str, seconds: float
) -> None:
    trouble = trouble_of(status, httpx2.Headers({b"retry-after": asked.encode()}), b"{}")
    assert isinstance(trouble, Busy)
    assert trouble.retry_seconds == seconds


async def test_a_missing_event_is_noticed_and_answered_with_a_new_snapshot() -> None:
    again = stream(snapshot(base=14), frame(1, base=14), "hold")
    server = Server(stream(snapshot(), frame(1), frame(3), frame(4)), again)
    seen, changes = await watch(server, 4)
    assert seen == [
        "snapshot 0 5-10-10", "pause_cleared 1 5-11-10", "snapshot 0 5-14-14", "pause_cleared 1 5-15-14",
    ]  # fmt: skip
    assert server.asked_from == [None, None]
    assert said(changes)[1] == "event 3 came after 1"


async def test_an_event_of_another_snapshot_is_no_continuation_though_its_number_fits() -> None:
    server = Server(stream(snapshot(), frame(1), frame(2, base=50)), stream(snapshot(base=60), "hold"))
    seen, _ = await watch(server, 3)
    assert seen[-1] == "snapshot 0 5-60-60"


async def test_the_stream_goes_on_after_an_id_that_somebody_kept() -> None:
    server = Server(stream(frame(8), "hold"))
    assert (await watch(server, 1, "5-17-10"))[0] == ["pause_cleared 8 5-18-10"]
    assert server.asked_from == ["5-17-10"]


async def test_a_resumed_stream_may_begin_with_a_snapshot_instead() -> None:
    server = Server(stream(snapshot(base=40), frame(1, base=40), "hold"))
    assert (await watch(server, 2, "5-17-10"))[0] == ["snapshot 0 5-40-40", "pause_cleared 1 5-41-40"]


async def test_a_silent_line_is_given_up_after_three_heartbeats() -> None:
    server = Server(stream(snapshot(), httpx2.ReadTimeout("")), stream(frame(1), "hold"))
    _, changes = await watch(server, 2)
    assert said(changes)[1] == "the connection fell silent"
    assert RetryPolicy().silence_seconds == 45.0
    assert server.requests[0].extensions["timeout"]["read"] == QUICK.silence_seconds


async def test_the_server_may_say_when_to_come_back() -> None:
    server = Server(stream(snapshot(), b"retry: 40\n"), refused(503, **{"retry-after": "0"}), stream(frame(1), "hold"))
    _, changes = await watch(server, 2)
    ended, busy = [change for change in changes if isinstance(change, Lost)]
    assert (ended.reason, busy.reason) == ("the server ended the stream", "no")
    assert 0.04 <= ended.retry_in_seconds <= 0.04 + QUICK.pause_max_seconds
    assert busy.retry_in_seconds <= QUICK.pause_max_seconds


@pytest.mark.parametrize("goodbye", [b"retry: 40\n", b"retry: 40\n\n"], ids=["ours", "of an older server"])
async def test_a_wish_to_stay_away_holds_for_one_time_only(goodbye: bytes) -> None:
    server = Server(stream(snapshot(), goodbye), stream(frame(1)), stream(frame(2), "hold"))
    _, changes = await watch(server, 3)
    assert [change.retry_in_seconds >= 0.04 for change in changes if isinstance(change, Lost)] == [True, False]


@pytest.mark.parametrize("after", [b": hb 1\n", frame(1), b"data: rubbish\n\n", b"retry: 0\n"])
async def test_a_retry_that_anything_follows_is_no_goodbye(after: bytes) -> None:
    last = frame(2 if after == frame(1) else 1)
    server = Server(stream(snapshot(), b"retry: 60000\n", after), stream(last, "hold"))
    _, changes = await watch(server, 3 if after == frame(1) else 2)
    (lost,) = [change for change in changes if isinstance(change, Lost)]
    assert lost.retry_in_seconds <= QUICK.pause_max_seconds


@pytest.mark.parametrize(
    ("last", "waits"), [(b"retry: 40\n", True), (b"retry: 40\n\n", True), (b"retry: 60000\n: hb 1\n", False)]
)
async def test_the_list_too_waits_only_after_a_goodbye(last: bytes, waits: bool) -> None:
    listed = b'data: {"seq":"0","type":"feed_snapshot","chats":[]}\n\n'
    server = Server(stream(listed, last), stream(listed, "hold"))
    began = anyio.current_time()
    async with Wire("http://127.0.0.1:1", None, QUICK, server) as wire:
        feed = follow_feed(wire)
        with anyio.fail_after(30):
            assert isinstance(await anext(feed), FeedSnapshot) and isinstance(await anext(feed), FeedSnapshot)
        await feed.aclose()
    assert not waits or anyio.current_time() - began >= 0.04


async def test_transient_frames_heartbeats_and_rubbish_are_no_events() -> None:
    noise = b': hb 1\ndata: {"chat_id":"c1","type":"presence"}\n\ndata: rubbish\n\ndata: [1]\n\n'
    server = Server(stream(noise, snapshot(), noise, frame(1), "hold"))
    assert (await watch(server, 2))[0] == ["snapshot 0 5-10-10", "pause_cleared 1 5-11-10"]


@pytest.mark.parametrize(
    ("status", "code"), [(400, "bad_request"), (401, "unauthorized"), (403, "forbidden"), (404, "not_found")]
)
async def test_a_stream_that_will_not_be_given_is_an_error_at_once(status: int, code: str) -> None:
    async with Client(URL, retry_policy=QUICK, transport=Server(refused(status, code=code))) as client:
        with anyio.fail_after(30), pytest.raises(Refused, match="no") as caught:
            await client.follow("c1", lambda item: None)
    assert caught.value.code == code


async def test_something_that_is_no_threadcast_server_is_called_so() -> None:
    other = Server(httpx2.Response(200, html="<p>hello</p>"))
    async with Client(URL, retry_policy=QUICK, transport=other) as client:
        with anyio.fail_after(30), pytest.raises(Unreadable, match="is no threadcast server"):
            await client.follow("c1", lambda item: None)


async def test_a_token_may_change_while_the_client_runs() -> None:
    tokens = iter(["tc_a", "tc_b"])
    server = Server(stream(snapshot()), stream(frame(1), "hold"))
    with anyio.fail_after(30), pytest.raises(_Enough):

        def take(item: StreamItem) -> None:
            if isinstance(item, Arrival) and item.seq == 1:
                raise _Enough

        async with Client(URL, lambda: next(tokens), retry_policy=QUICK, transport=server) as client:
            await client.follow("c1", take)
    assert [request.headers["authorization"] for request in server.requests] == ["Bearer tc_a", "Bearer tc_b"]


@given(st.lists(st.integers(1, 60), max_size=30))
def test_bytes_may_be_cut_anywhere(cuts: list[int]) -> None:
    whole = snapshot() + b"".join(frame(n, text=f"ä\n{n}") for n in range(1, 6))
    chunks: list[bytes] = []
    for cut in cuts:
        chunks.append(whole[:cut])
        whole = whole[cut:]
    server = Server(stream(*[chunk for chunk in (*chunks, whole) if chunk], "hold"))

    async def run() -> None:
        seen, _ = await watch(server, 6)
        assert [line.split()[1] for line in seen] == list("012345")

    anyio.run(run)


@given(st.floats(0, 1, exclude_max=True), st.integers(1, 12), st.floats(0, 60))
def test_pauses_lie_under_a_ceiling_that_doubles_to_its_bound_and_above_what_was_asked(
    drawn: float, tries: int, asked: float
) -> None:
    backoff = Backoff(RetryPolicy(), lambda: drawn)
    pauses = [backoff.pause(asked) for _ in range(tries)]
    assert pauses == [asked + drawn * min(0.25 * 2**at, 5.0) for at in range(tries)]
    backoff.reset()
    assert backoff.pause() == drawn * 0.25


async def test_a_stream_that_does_not_begin_with_a_snapshot_is_begun_anew() -> None:
    server = Server(stream(frame(1), frame(2)), stream(snapshot(), frame(1), "hold"))
    assert (await watch(server, 2))[0] == ["snapshot 0 5-10-10", "pause_cleared 1 5-11-10"]
    assert server.asked_from == [None, None]


async def test_bytes_that_cannot_be_decompressed_are_a_broken_connection() -> None:
    broken = httpx2.DecodingError("incorrect header check")
    seen, changes = await watch(Server(stream(snapshot(), broken), stream(frame(1), "hold")), 2)
    assert seen == ["snapshot 0 5-10-10", "pause_cleared 1 5-11-10"]
    assert said(changes) == ["open", "the answer cannot be decompressed", "open"]


def test_events_that_count_from_another_snapshot_do_not_continue_a_stream() -> None:
    """A server that lost the end of its log sends a snapshot. If its snapshot is lost, the next `seq` may fit by
    chance."""
    event = Frame("c1", encode(ThreadUpdated(title="x")), 2, 1).for_base(0)
    with pytest.raises(Missed):
        list(Reading({"c1": 0}, resumed_from="1-72-72").feed(event))
    follows = Frame("c1", encode(ThreadUpdated(title="x")), 2, 73).for_base(72)
    assert [item.seq for item in Reading({"c1": 0}, resumed_from="1-72-72").feed(follows)] == [1]  # type: ignore[union-attr]
