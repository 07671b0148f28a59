"""The Python client when the server is silent, refuses the caller's token, or may have stored a cancelled command."""

import anyio
import httpx2
import msgspec
import pytest

from tests.unit.client_harness import (
    BEAT,
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
from threadcast_client import Chat, ChatLeft, Client, Connection, FileOutbox, Unauthorized
from threadcast_client.errors import Cancelled
from threadcast_client.feed import FeedSnapshot, follow_feed
from threadcast_client.outbox import WITHDRAWN
from threadcast_client.wire import Wire
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio

IMPATIENT = msgspec.structs.replace(QUICK, quiet_seconds=0.02)


# Silence.


async def test_a_silent_server_is_told_once_and_what_it_sends_then_takes_that_back() -> None:
    speaks = anyio.Event()
    server = Server(stream(snapshot(), BEAT, speaks, BEAT, "hold"))
    told: list[Connection] = []
    async with (
        Client(URL, retry_policy=IMPATIENT, transport=server) as client,
        client.chat("c1", on_state=told.append) as chat,
    ):
        await until(lambda: chat.connection.silent_seconds >= 0.02)
        assert chat.connection.state == "live"
        assert str(chat.connection) == "no word from the server for 0 s"
        await anyio.sleep(0.06)
        assert sum(1 for each in told if each.silent_seconds) == 1
        speaks.set()
        await until(lambda: not chat.connection.silent_seconds)
        await until(lambda: chat.connection.silent_seconds)
    assert len(server.asked_from) == 1, "the connection is kept until it has been silent for `silence_seconds`"


async def test_an_answer_to_a_command_shows_that_the_silent_connection_is_dead() -> None:
    server = Server(stream(snapshot(), BEAT, "hold"), stream(BEAT, frame(1), "hold"))
    async with Client(URL, retry_policy=IMPATIENT, transport=server) as client, client.chat("c1") as chat:
        await until(lambda: chat.connection.silent_seconds)
        chat.send("Are you there?")
        await until(lambda: chat.state.position == 11)
    assert server.asked_from == [None, "5-10-10"]


# A caller whose token the server refuses.


async def test_a_refused_token_is_waited_out_and_what_is_sent_goes_out_after_the_sign_in() -> None:
    token = "old"
    ends = anyio.Event()
    server = Server(stream(snapshot(), BEAT, ends), refused(401, "unauthorized"), stream(BEAT, "hold"))
    async with (
        Client(URL, lambda: token, retry_policy=QUICK, transport=server, awaits_sign_in=True) as client,
        client.chat("c1") as chat,
    ):
        await until(lambda: chat.connection.state == "live")
        server._on_post = lambda body: refused(401, "unauthorized") if token == "old" else accepted()
        sent = chat.send("kept")
        await until(lambda: chat.connection.is_signed_out)
        assert (chat.connection.state, chat.failure, str(chat.connection)) == (
            "live",
            None,
            "signed out, 1 to send: no",
        )
        ends.set()
        await until(lambda: chat.connection.state == "offline" and chat.connection.is_signed_out)
        token = "new"
        client.retry()
        await until(lambda: chat.connection.state == "live")
        await sent.accepted(seconds=30)
        assert not chat.connection.is_signed_out
    assert server.requests[-1].headers["authorization"] == "Bearer new"


async def test_whoever_is_told_of_it_may_sign_in_at_once() -> None:
    token = {"now": "old"}
    server = Server(refused(401, "unauthorized"), stream(snapshot(), BEAT, "hold"))
    client = Client(URL, lambda: token["now"], retry_policy=QUICK, transport=server, awaits_sign_in=True)

    def on_state(connection: Connection) -> None:
        if connection.is_signed_out:
            token["now"] = "new"
            client.retry()

    with anyio.fail_after(10):
        async with client, client.chat("c1", on_state=on_state):
            pass
    assert [each.headers["authorization"] for each in server.requests] == ["Bearer old", "Bearer new"]


async def test_without_anybody_who_signs_in_a_refused_token_ends_the_chat() -> None:
    server = Server(refused(401, "unauthorized"))
    async with Client(URL, retry_policy=QUICK, transport=server) as client:
        with pytest.raises(Unauthorized):
            async with client.chat("c1"):
                pass


async def test_the_list_waits_for_a_sign_in_too() -> None:
    listed = b'data: {"seq":"0","type":"feed_snapshot","chats":[]}\n\n'
    server = Server(refused(401, "unauthorized"), stream(listed, "hold"))
    async with Wire(URL, None, QUICK, server, awaits_sign_in=True) as wire, anyio.create_task_group() as tasks:
        feed = follow_feed(wire)

        async def retry() -> None:
            await until(lambda: len(server.requests) == 1)
            await until(lambda: wire._retried is not None)
            wire.retry()

        tasks.start_soon(retry)
        with anyio.fail_after(10):
            assert isinstance(await anext(feed), FeedSnapshot)
        await feed.aclose()


# Commands that the caller cancels.


async def test_a_command_that_was_never_posted_is_gone_at_once() -> None:
    server = Server(stream(snapshot(), BEAT, "hold"), on_post=lambda body: DOWN)
    async with live(server) as chat:
        sent = chat.send("unwanted")
        assert await chat.withdraw(sent) == "gone"
        with pytest.raises(Cancelled):
            await sent
        await chat.settled(30)
    assert not server.posted


class _Queue(Server):
    """Loses the answer to the first post. `answers` maps DELETE to its answer, and GET to the answer to a request for
    the tree."""

    def __init__(self, **answers: Answer) -> None:
        super().__init__(stream(snapshot(), BEAT, "hold"), on_post=lambda body: DOWN)
        self.answers = answers
        self.asked: list[str] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        is_tree = request.url.query == b"view=tree"
        if request.method != "DELETE" and not is_tree:
            return await super().handle_async_request(request)
        self.asked.append(request.method)
        answer = self.answers[request.method]
        if isinstance(answer, Exception):
            raise answer
        return answer


def tree(*messages: JsonObject) -> httpx2.Response:
    return httpx2.Response(200, json={"messages": list(messages)})


async def withdrawn(server: _Queue) -> tuple[str, Chat]:
    async with Client(URL, retry_policy=QUICK, transport=server) as client, client.chat("c1") as chat:
        sent = chat.send({"type": "user_message", "client_request_id": "r1", "content": "unwanted"})
        await until(lambda: server.posted)
        with anyio.fail_after(30):
            outcome = await chat.withdraw(sent)
            assert await chat.withdraw(sent) == "sent", "it is not there any more"
        if outcome == "gone":
            assert isinstance(sent.refused, Cancelled)
        else:
            assert (await sent).accepted
        assert client.outbox.chats() == []
        return outcome, chat


async def test_a_command_that_waits_in_the_queue_is_taken_back() -> None:
    server = _Queue(DELETE=httpx2.Response(200, json={"status": "cancelled"}))
    assert (await withdrawn(server))[0] == "gone"
    assert server.asked == ["DELETE"]


@pytest.mark.parametrize(
    ("said", "outcome"),
    [([message("m1", "user", "unwanted", client_request_id="r1")], "sent"), ([message("m2", "user", "other")], "gone")],
)
async def test_a_command_that_does_not_wait_is_sent_if_the_chat_has_its_message(
    said: list[JsonObject], outcome: str
) -> None:
    server = _Queue(DELETE=refused(404, "not_found"), GET=tree(*said))
    assert (await withdrawn(server))[0] == outcome
    assert server.asked == ["DELETE", "GET"]


async def test_what_is_being_taken_back_is_kept_and_not_counted_and_a_later_program_goes_on_with_it(
    tmp_path: object,
) -> None:
    path = f"{tmp_path}/outbox"
    outbox, server = FileOutbox(path), _Queue(DELETE=DOWN)
    failed: list[BaseException] = []

    async def withdraw(chat: Chat) -> None:
        try:
            await chat.withdraw(sent)
        except ChatLeft as wrong:
            failed.append(wrong)

    async with (
        Client(URL, outbox=outbox, retry_policy=QUICK, transport=server) as client,
        anyio.create_task_group() as tasks,
        client.chat("c1") as chat,
    ):
        sent = chat.send({"type": "user_message", "client_request_id": "r1", "content": "unwanted"})
        await until(lambda: server.posted)
        assert chat.connection.held_count == 1
        tasks.start_soon(withdraw, chat)
        await until(lambda: server.asked)
        assert (chat.connection.held_count, [each.type for each in outbox.held("c1")]) == (0, [WITHDRAWN])
        posted = len(server.posted)
    outbox.close()
    assert failed and len(server.posted) == posted

    outbox, server = FileOutbox(path), _Queue(DELETE=httpx2.Response(200, json={"status": "cancelled"}))
    async with Client(URL, outbox=outbox, retry_policy=QUICK, transport=server) as client, client.chat("c1") as chat:
        await chat.settled(30)
    outbox.close()
    assert (server.asked, server.posted) == (["DELETE"], [])
