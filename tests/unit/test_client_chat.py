"""A live chat of the Python client, over a scripted transport: a sent command is held only until the stream shows
it."""

import anyio
import httpx2
import pytest

from tests.unit.client_harness import (
    BEAT,
    BROKEN,
    DOWN,
    QUICK,
    URL,
    Answer,
    Server,
    accepted,
    frame,
    live,
    message,
    refused,
    snapshot,
    stream,
    until,
)
from threadcast_client import (
    Chat,
    ChatLeft,
    Client,
    Connection,
    OutboxFull,
    RawEvent,
    RetryPolicy,
    Unauthorized,
    Unreachable,
)
from threadcast_client import chats as chats_module
from threadcast_client.backoff import Backoff
from threadcast_client.errors import BadRequest, Cancelled, NotFound, QueueFull
from threadcast_client.listeners import QUEUE_MAX_COUNT, Listeners
from threadcast_protocol.wire.events import MessageAdded, PauseCleared, Snapshot
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio


def ids(server: Server) -> list[str]:
    return [body["client_request_id"] for body in server.posted]


def ack(seq: int, request_id: str = "r1", *, yes: bool = True, code: str = "") -> bytes:
    result: JsonObject = {"queued": True} if yes else {"error": "no", "code": code}
    return frame(seq, "ack", client_request_id=request_id, accepted=yes, result=result)


def say(request_id: str = "r1", kind: str = "user_message") -> JsonObject:
    return {"type": kind, "client_request_id": request_id, "content": "hi"}


async def test_a_command_is_posted_again_after_every_reconnect_until_its_ack_is_seen() -> None:
    breaks, seen, ends = anyio.Event(), anyio.Event(), anyio.Event()
    server = Server(
        stream(snapshot(), BEAT, breaks, BROKEN), stream(BEAT, seen, ack(1), ends, BROKEN), stream(BEAT, "hold")
    )
    async with live(server) as chat:
        sent = chat.send(say())
        await sent.accepted()
        breaks.set()
        await until(lambda: len(server.posted) == 2)
        assert (chat.held_count, sent.ack) == (1, None)
        seen.set()
        assert (await sent).accepted
        assert chat.held_count == 0
        ends.set()
        await until(lambda: len(server.asked_from) == 3 and chat.connection.state == "live")
    assert server.posted == [server.posted[0]] * 2


class _LateAnswers(Server):
    """A post is answered when `may_answer` is set; the stream may show the command earlier."""

    def __init__(self, *streams: Answer) -> None:
        super().__init__(*streams)
        self.may_answer = anyio.Event()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        answer = await super().handle_async_request(request)
        if request.method == "POST":
            await self.may_answer.wait()
        return answer


async def test_a_command_whose_ack_overtook_the_answer_may_be_sent_again_under_its_id() -> None:
    seen, again = anyio.Event(), anyio.Event()
    server = _LateAnswers(stream(snapshot(), BEAT, seen, ack(1), again, ack(2), "hold"))
    async with live(server) as chat:
        sent, twice = chat.send(say()), chat.send(say())
        await until(lambda: len(server.posted) == 1)
        seen.set()
        assert (await sent).accepted and (await twice).accepted
        server.may_answer.set()
        chat.send(say("r2"))
        await until(lambda: len(server.posted) == 2)
        sent = chat.send(say())
        await until(lambda: len(server.posted) == 3)
        again.set()
        assert (await sent).accepted
    assert ids(server) == ["r1", "r2", "r1"]


async def test_an_answer_that_an_older_connection_asked_for_does_not_count_on_the_newer_one() -> None:
    breaks = anyio.Event()
    server = _LateAnswers(stream(snapshot(), BEAT, breaks, BROKEN), stream(BEAT, "hold"))
    async with live(server) as chat:
        chat.send(say())
        await until(lambda: len(server.posted) == 1)
        breaks.set()
        await until(lambda: len(server.asked_from) == 2 and chat.connection.state == "catching_up")
        server.may_answer.set()
        await until(lambda: len(server.posted) == 2)
        assert chat.held_count == 1, "no ack was seen"


async def test_a_new_connection_ends_the_wait_that_an_older_one_was_told() -> None:
    breaks = anyio.Event()
    answers: list[Answer] = [refused(503, "unavailable", **{"retry-after": "3600"})]
    server = Server(
        stream(snapshot(), BEAT, breaks, BROKEN),
        stream(BEAT, "hold"),
        on_post=lambda _: answers.pop() if answers else accepted(),
    )
    async with live(server) as chat:
        sent = chat.send(say("stop", "abort"))
        await until(lambda: chat.connection.reason)
        breaks.set()
        await sent.accepted()
    assert ids(server) == ["stop", "stop"]


@pytest.mark.parametrize(
    "shown",
    [
        {"recent_acks": [{"type": "ack", "client_request_id": "r1", "accepted": True, "result": {}}]},
        {"messages": [message("m", "user", "hi", client_request_id="r1")]},
        {
            "runtime": {
                "queue_size": 1,
                "queued_items": [
                    {
                        "client_request_id": "r1",
                        "priority": False,
                        "command_type": "user_message",
                        "preview": "",
                        "content": "",
                    }
                ],
            }
        },
    ],
    ids=["ack", "message", "queue"],
)
async def test_a_snapshot_that_shows_the_command_settles_it_too(shown: JsonObject) -> None:
    server = Server(stream(snapshot()), stream(snapshot(**shown), "hold"))
    async with live(server, wait=False) as chat:
        sent = chat.send(say())
        assert (await sent).accepted
        assert chat.held_count == 0


async def test_commands_go_out_in_order_and_only_what_overtakes_the_queue_overtakes_a_wait() -> None:
    answers: list[Answer] = [refused(429, "rate_limited", **{"retry-after": "1"})]
    server = Server(stream(snapshot(), BEAT, "hold"), on_post=lambda body: answers.pop() if answers else accepted())
    async with live(server) as chat:
        for request_id in ("r1", "r2"):
            chat.send(say(request_id))
        chat.send({"type": "abort", "client_request_id": "a1"})
        await until(lambda: len(server.posted) == 2)
        assert ids(server) == ["r1", "a1"]
        assert chat.connection.retry_in_seconds >= 1
        assert str(chat.connection) == "live, 3 to send"
        await until(lambda: len(server.posted) == 4)
        assert ids(server) == ["r1", "a1", "r1", "r2"]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [(refused(400, "bad_request"), BadRequest), (refused(429, "queue_full"), QueueFull), (refused(404), NotFound)],
)
async def test_what_is_refused_for_good_leaves_the_outbox_and_is_never_posted_again(
    answer: Answer, kind: type[Exception]
) -> None:
    server = Server(stream(snapshot(), BEAT), stream(frame(1), BEAT, "hold"), on_post=lambda body: answer)
    async with live(server, wait=False) as chat:
        with pytest.raises(kind, match="no"):
            await chat.send(say())
        await until(lambda: len(server.asked_from) == 2 and chat.connection.state == "live")
        assert (len(server.posted), chat.held_count) == (1, 0)


async def test_a_refusal_that_comes_after_a_first_yes_is_not_lost() -> None:
    server = Server(stream(snapshot(), ack(1), ack(2, yes=False, code="cancelled"), "hold"))
    async with live(server, wait=False) as chat:
        sent = chat.send(say())
        await until(lambda: sent.refused)
        assert isinstance(sent.refused, Cancelled)
        assert sent.ack is not None


async def test_a_chat_that_could_be_opened_again_waits_no_longer_than_at_first_when_it_is_in_trouble_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []

    class Noted(Backoff):
        def __init__(self, retry_policy: RetryPolicy) -> None:
            super().__init__(retry_policy, lambda: 0.5)

        def pause(self, at_least_seconds: float = 0.0) -> float:
            pauses.append(super().pause(at_least_seconds))
            return pauses[-1]

    monkeypatch.setattr(chats_module, "Backoff", Noted)
    trouble = b'data: {"chat_id":"c1","type":"chat_removed","reason":"unavailable"}\n\n'
    again = [anyio.Event() for _ in range(3)]
    server = Server(
        stream(snapshot(), trouble, again[0], trouble, again[1], snapshot(), trouble, again[2], snapshot(), "hold")
    )
    async with Client(URL, retry_policy=QUICK, transport=server) as client, client.chats(["c1"]):
        for number, come in enumerate(again, 1):
            await until(lambda: len(server.posted) == number)  # noqa: B023 - awaited at once
            come.set()
    first = QUICK.pause_first_seconds / 2
    assert pauses == [first, 2 * first, first]


async def test_a_server_that_is_away_is_said_and_what_was_sent_stays() -> None:
    server = Server(*[DOWN] * 100_000, on_post=lambda body: DOWN)
    told: list[Connection] = []
    hasty = RetryPolicy(pause_first_seconds=0.001, pause_max_seconds=0.002, open_seconds=0.1)
    async with Client(URL, retry_policy=hasty, transport=server) as client:
        with pytest.raises(Unreachable, match="it is offline: the server does not answer"):
            async with client.chat("c1"):
                raise AssertionError
        async with client.chat("c1", wait=False, on_state=told.append) as chat:
            sent = chat.send(say())
            with pytest.raises(Unreachable, match="stays in the outbox"):
                await sent.accepted(0.02)
            assert str(chat.connection) == "offline, 1 to send: the server does not answer"
        assert [held.request_id for held in client.outbox.held("c1")] == ["r1"]
        with pytest.raises(ChatLeft):
            chat.send("too late")
        assert isinstance(sent.refused, ChatLeft)


async def test_a_refused_token_ends_the_chat_and_keeps_what_was_sent() -> None:
    server = Server(stream(snapshot(), BEAT, "hold"), on_post=lambda body: refused(401, "unauthorized"))
    async with live(server) as chat:
        with pytest.raises(Unauthorized):
            await chat.send(say())
        with pytest.raises(Unauthorized):
            async for _ in chat.events():
                pass
        assert chat.held_count == 1


async def test_a_full_outbox_is_an_error_of_the_one_who_sends() -> None:
    down = Server(on_post=lambda body: DOWN)
    async with Client(URL, retry_policy=QUICK, transport=down) as client, client.chat("c1", wait=False) as chat:
        for _ in range(100):
            chat.send("hi")
        with pytest.raises(OutboxFull):
            chat.send("hi")
        assert chat.connection.held_count == 100


async def test_events_are_typed_and_what_is_not_known_comes_as_it_stands() -> None:
    added = frame(1, "message_added", message=message("m1", "user", "hi"), index=0)
    strange = frame(2, "from_the_future", answer=42)
    tools_own = frame(3, "browser_frame", image="x")
    server = Server(stream(snapshot(), added, strange, tools_own, frame(4), BEAT, "hold"))
    async with live(server, wait=False) as chat:
        seen: list[object] = []
        async for event in chat.events():
            if not isinstance(event, Connection):
                seen.append(event)
            if isinstance(event, PauseCleared):
                break
        assert [type(event) for event in seen] == [Snapshot, MessageAdded, RawEvent, RawEvent, PauseCleared]
        assert isinstance(seen[2], RawEvent) and seen[2].fields["answer"] == 42
        assert isinstance(seen[3], RawEvent) and seen[3].fields["image"] == "x"
        assert chat.state.position == 14


async def test_a_reader_that_is_too_slow_gets_a_snapshot_in_place_of_what_it_missed() -> None:
    events = [frame(seq) for seq in range(1, QUEUE_MAX_COUNT + 10)]
    server = Server(stream(snapshot(), *events, BEAT, "hold"))
    async with live(server, wait=False) as chat:
        slow = chat.events()
        await until(lambda: chat.state.position == 10 + len(events))
        first = await anext(slow)
        assert (isinstance(first, Snapshot), slow.drops) == (True, 1)


async def test_readers_that_nobody_holds_are_forgotten() -> None:
    listeners = Listeners(lambda: pytest.fail("no snapshot is needed"))
    events = listeners.new()
    assert len(listeners._all) == 1
    del events
    assert len(listeners._all) == 0


async def test_what_the_block_raises_comes_out_as_it_is() -> None:
    async with Client(URL, retry_policy=QUICK, transport=Server(stream(snapshot(), "hold"))) as client:
        with pytest.raises(ZeroDivisionError):
            async with client.chat("c1"):
                raise ZeroDivisionError


async def test_an_open_line_is_called_live_when_it_has_caught_up_and_not_before() -> None:
    told: list[str] = []
    server = Server(stream(snapshot(), BEAT), stream(frame(1), frame(2), BEAT, "hold"))

    def tell(connection: Connection) -> None:
        told.append(f"{connection.state} {chats[0].state.position if chats else 0}")

    chats: list[Chat] = []
    async with (
        Client(URL, retry_policy=QUICK, transport=server) as client,
        client.chat("c1", on_state=tell, wait=False) as chat,
    ):
        chats.append(chat)
        await until(lambda: len(server.asked_from) == 2 and chat.connection.state == "live")
    assert told == ["catching_up 0", "live 10", "offline 10", "catching_up 10", "live 12"]
