"""The Python client: one endless stream over many broken connections, and commands that are not lost."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

import anyio
import httpx2
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.messages import JsonObject
from server.client import Client, Connection, Patience, RequestRefused, Unreachable

pytestmark = pytest.mark.anyio

QUICK = Patience(pause_first_seconds=0.001, pause_max_seconds=0.002, post_seconds=0.2)
SSE = {"content-type": "text/event-stream"}


def frame(seq: int, kind: str = "stream_delta", *, base: int = 10, **fields: object) -> bytes:
    event = {"chat_id": "c1", "seq": str(seq), "type": kind, **fields}
    return b"data: %b\nid: 5-%d-%d\n\n" % (msgspec.json.encode(event), base + seq, base)


def snapshot(*, base: int = 10, **fields: object) -> bytes:
    fields = {"messages": [], "runtime": {}} | fields
    return frame(0, "snapshot", base=base, **fields)


class Stream(httpx2.AsyncByteStream):
    """Chunks, then the end: an exception breaks the line, None ends it cleanly, "hold" keeps it open."""

    def __init__(self, *parts: bytes | Exception | str) -> None:
        self._parts = parts

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self._parts:
            if isinstance(part, Exception):
                raise part
            if isinstance(part, str):
                await anyio.sleep_forever()
                return
            yield part


Answer = httpx2.Response | Exception


class Server(httpx2.AsyncBaseTransport):
    """Answers the n-th stream request with the n-th of `streams`, and posts by `on_post`."""

    def __init__(self, *streams: Answer, on_post: Callable[[JsonObject], Answer] | None = None) -> None:
        self._streams = list(streams)
        self._on_post = on_post or (lambda body: accepted())
        self.asked_from: list[str | None] = []
        self.posted: list[JsonObject] = []
        self.requests: list[httpx2.Request] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        if request.method == "GET":
            self.asked_from.append(request.headers.get("last-event-id"))
            answer = self._streams.pop(0)
        else:
            body: JsonObject = msgspec.json.decode(request.content, type=JsonObject)
            self.posted.append(body)
            answer = self._on_post(body)
        if isinstance(answer, Exception):
            raise answer
        return answer


def accepted(status: str = "accepted", code: int = 202) -> httpx2.Response:
    return httpx2.Response(code, json={"status": status})


def stream(*parts: bytes | Exception | str) -> httpx2.Response:
    return httpx2.Response(200, headers=SSE, stream=Stream(*parts))


def refused(status: int, **headers: str) -> httpx2.Response:
    return httpx2.Response(status, headers=headers, json={"detail": "no", "code": "x"})


BROKEN = httpx2.ReadError("reset")
DOWN = httpx2.ConnectError("refused")


async def watch(server: Server, count: int, last_event_id: str | None = None) -> tuple[list[str], list[Connection]]:
    """The first `count` events as `type seq id`, and what was said about the connection meanwhile."""
    seen: list[str] = []
    changes: list[Connection] = []
    with anyio.fail_after(30):
        async with (
            Client("http://127.0.0.1:1", patience=QUICK, transport=server) as client,
            aclosing(client.subscribe("c1", last_event_id, on_change=changes.append)) as events,
        ):
            async for event, event_id in events:
                seen.append(f"{event['type']} {event['seq']} {event_id}")
                if len(seen) == count:
                    break
    return seen, changes


async def test_a_broken_line_is_resumed_where_it_stopped_and_nothing_comes_twice() -> None:
    server = Server(stream(snapshot(), frame(1), BROKEN), DOWN, stream(frame(2), frame(3), "hold"))
    seen, changes = await watch(server, 4)
    assert seen == ["snapshot 0 5-10-10", "stream_delta 1 5-11-10", "stream_delta 2 5-12-10", "stream_delta 3 5-13-10"]
    assert server.asked_from == [None, "5-11-10", "5-11-10"]
    assert [(change.is_open, change.reason) for change in changes] == [
        (True, ""),
        (False, "the connection broke"),
        (False, "nobody answers there"),
        (True, ""),
    ]


async def test_a_missing_event_is_noticed_and_answered_with_a_new_snapshot() -> None:
    server = Server(
        stream(snapshot(), frame(1), frame(3), frame(4)), stream(snapshot(base=14), frame(1, base=14), "hold")
    )
    seen, _ = await watch(server, 4)
    assert seen == ["snapshot 0 5-10-10", "stream_delta 1 5-11-10", "snapshot 0 5-14-14", "stream_delta 1 5-15-14"]
    assert server.asked_from == [None, None]


async def test_the_stream_goes_on_after_an_id_that_somebody_kept() -> None:
    server = Server(stream(frame(8), "hold"))
    assert (await watch(server, 1, "5-17-10"))[0] == ["stream_delta 8 5-18-10"]
    assert server.asked_from == ["5-17-10"]


async def test_a_resumed_stream_may_begin_with_a_snapshot_instead() -> None:
    server = Server(stream(snapshot(base=40), frame(1, base=40), "hold"))
    assert (await watch(server, 2, "5-17-10"))[0] == ["snapshot 0 5-40-40", "stream_delta 1 5-41-40"]


async def test_a_silent_line_is_given_up_after_three_heartbeats() -> None:
    server = Server(stream(snapshot(), httpx2.ReadTimeout("")), stream(frame(1), "hold"))
    _, changes = await watch(server, 2)
    assert changes[1].reason == "the line fell silent"
    assert server.requests[0].extensions["timeout"]["read"] == 45.0


async def test_the_server_may_say_when_to_come_back() -> None:
    server = Server(
        stream(snapshot(), b"retry: 40\n\n"), refused(503, **{"retry-after": "0"}), stream(frame(1), "hold")
    )
    _, changes = await watch(server, 2)
    assert (changes[1].reason, changes[1].retry_in_seconds) == ("the server ended the stream", 0.04)
    assert changes[2].reason == "no"


async def test_transient_frames_heartbeats_and_rubbish_are_skipped() -> None:
    noise = b': hb 1\n\ndata: {"chat_id":"c1","type":"presence"}\n\ndata: rubbish\n\ndata: [1]\n\n'
    server = Server(stream(noise, snapshot(), noise, frame(1), "hold"))
    assert (await watch(server, 2))[0] == ["snapshot 0 5-10-10", "stream_delta 1 5-11-10"]


@pytest.mark.parametrize("status", [400, 401, 403, 404])
async def test_a_stream_that_will_not_be_given_is_an_error_at_once(status: int) -> None:
    with pytest.raises(RequestRefused, match="no") as caught:
        await watch(Server(refused(status)), 1)
    assert caught.value.status == status


async def test_something_that_is_no_threadcast_server_is_called_so() -> None:
    with pytest.raises(RequestRefused, match="is no threadcast server"):
        await watch(Server(httpx2.Response(200, html="<p>hello</p>")), 1)


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


async def test_a_post_is_repeated_with_one_id_until_it_is_answered() -> None:
    answers: list[Answer] = [DOWN, refused(503), BROKEN, accepted("duplicate", 200)]
    server = Server(on_post=lambda body: answers.pop(0))
    async with Client("http://127.0.0.1:1", "tc_a", patience=QUICK, transport=server) as client:
        answer = await client.post("c1", {"type": "abort"})
    assert (answer.status, answer.body, answer.is_accepted) == (200, {"status": "duplicate"}, True)
    assert len(server.posted) == 4
    assert len({body["client_request_id"] for body in server.posted}) == 1
    assert {request.headers["authorization"] for request in server.requests} == {"Bearer tc_a"}


async def test_a_refusal_is_an_answer_and_is_not_repeated() -> None:
    server = Server(on_post=lambda body: refused(400))
    async with Client("http://127.0.0.1:1", patience=QUICK, transport=server) as client:
        answer = await client.post("c1", {"type": "nonsense"})
    assert (answer.status, answer.reason, answer.is_accepted, len(server.posted)) == (400, "no", False, 1)


async def test_no_answer_in_time_is_said() -> None:
    server = Server(on_post=lambda body: DOWN)
    async with Client("http://127.0.0.1:1", patience=QUICK, transport=server) as client:
        with pytest.raises(Unreachable, match="nobody answers there"):
            await client.post("c1", {"type": "abort"})


async def _lose_and_reconnect(second: bytes) -> tuple[Server, list[list[str]]]:
    """Watch, post, lose the line before any ack, reconnect to `second`; what is kept after each event."""
    server = Server(stream(snapshot(), frame(1), BROKEN), stream(second, frame(3), "hold"))
    kept: list[list[str]] = []
    with anyio.fail_after(30):
        async with (
            Client("http://127.0.0.1:1", patience=QUICK, transport=server) as client,
            aclosing(client.subscribe("c1")) as events,
        ):
            async for event, _ in events:
                if event["type"] == "snapshot" and not kept:
                    await client.post("c1", {"client_request_id": "r1", "type": "user_message", "content": "hi"})
                kept.append(client.kept("c1"))
                if event["seq"] in ("3", "2"):
                    break
    return server, kept


async def test_a_command_is_kept_and_posted_again_until_its_ack_is_seen() -> None:
    server, kept = await _lose_and_reconnect(frame(2, "ack", client_request_id="r1", accepted=True, result={}))
    assert [body["client_request_id"] for body in server.posted] == ["r1", "r1"]
    assert server.posted[0] == server.posted[1]
    assert kept == [["r1"], ["r1"], []]


@pytest.mark.parametrize(
    "shown",
    [
        {"recent_acks": [{"client_request_id": "r1", "accepted": True}]},
        {"messages": [{"message_id": "m", "role": "user", "client_request_id": "r1"}]},
        {"runtime": {"queued_items": [{"client_request_id": "r1"}]}},
    ],
)
async def test_a_snapshot_that_shows_the_command_settles_it_too(shown: JsonObject) -> None:
    server = Server(stream(snapshot()), stream(snapshot(**shown), "hold"))
    async with (
        Client("http://127.0.0.1:1", patience=QUICK, transport=server) as client,
        aclosing(client.subscribe("c1")) as events,
    ):
        await anext(events)
        await client.post("c1", {"client_request_id": "r1", "type": "user_message", "content": "hi"})
        await anext(events)
        assert client.kept("c1") == []


async def test_a_command_refused_when_posted_again_is_let_go() -> None:
    answers: list[Answer] = [accepted(), refused(409)]
    server = Server(stream(snapshot()), stream(frame(1), "hold"), on_post=lambda body: answers.pop(0))
    async with (
        Client("http://127.0.0.1:1", patience=QUICK, transport=server) as client,
        aclosing(client.subscribe("c1")) as events,
    ):
        await anext(events)
        await client.post("c1", {"client_request_id": "r1", "type": "abort"})
        await anext(events)
        assert client.kept("c1") == []


def test_pauses_grow_to_their_bound_and_are_spread() -> None:
    random.seed(7)
    pauses = Client("http://x", patience=Patience())._pauses()
    drawn = [next(pauses) for _ in range(12)]
    for index, pause in enumerate(drawn):
        middle = min(0.25 * 2**index, 5.0)
        assert middle / 2 <= pause <= middle * 1.5
    assert len(set(drawn)) == len(drawn)


async def test_a_refused_command_is_not_kept() -> None:
    server = Server(stream(snapshot(), "hold"), on_post=lambda body: refused(400))
    async with (
        Client("http://127.0.0.1:1", patience=QUICK, transport=server) as client,
        aclosing(client.subscribe("c1")) as events,
    ):
        await anext(events)
        await client.post("c1", {"type": "nonsense"})
        assert client.kept("c1") == []
