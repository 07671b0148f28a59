"""The Python client against a real server: it keeps its promises when connections are cut, answers are lost and servers
are killed."""

import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from tests.integration.cutting_proxy import cutting
from tests.ports import free_port
from tests.support.server import DEADLINE_SECONDS, ROOT, Process, start
from threadcast_client import AnswerFailed, Chat, Client, Connection, FileOutbox, RetryPolicy, ToolAnswer
from threadcast_client.errors import NoPendingDecision, NotFound
from threadcast_protocol.fold.snapshot import snapshot_of
from threadcast_protocol.framing.codec import decode_snapshot, encode
from threadcast_protocol.wire.events import StreamDelta

pytestmark = pytest.mark.anyio

QUICK = RetryPolicy(pause_first_seconds=0.05, pause_max_seconds=0.2, open_seconds=DEADLINE_SECONDS)
SLOWLY = {"params": {"model": "demo/essay?rate=100"}}
"""An answer that takes some seconds."""


async def is_the_servers(client: Client, chat: Chat) -> bool:
    """Return whether the folded state equals the server's snapshot."""
    answer = await client.request("GET", f"/v1/chats/{chat.id}")
    return encode(decode_snapshot(answer.content)) == encode(snapshot_of(chat.state))


async def test_an_answer_comes_whole_through_a_line_that_is_cut_every_two_thousand_bytes(
    server: Process, chat_id: str
) -> None:
    async with (
        cutting(server.url) as proxy,
        Client(proxy.url, retry_policy=QUICK) as client,
        client.chat(chat_id) as chat,
    ):
        proxy.cut_after_bytes = 2_000
        with anyio.fail_after(DEADLINE_SECONDS):
            answer = chat.ask("hello", params={"model": "demo/essay?rate=300"})
            pieces = [piece async for piece in answer]
            proxy.cut_after_bytes = None
            await chat.at_rest()
        assert proxy.cuts > 1
        assert "".join(pieces) == answer.text == str(chat.messages[-1].content)
        assert [message.role for message in chat.messages] == ["user", "assistant"]
        assert await is_the_servers(client, chat)


async def test_a_message_whose_answer_was_lost_is_posted_again_and_said_once(server: Process, chat_id: str) -> None:
    async with (
        cutting(server.url) as proxy,
        Client(proxy.url, retry_policy=QUICK) as client,
        client.chat(chat_id) as chat,
    ):
        proxy.loses_answers_to = b"POST"
        with anyio.fail_after(DEADLINE_SECONDS):
            await chat.send("only once")
            await chat.at_rest()
        assert proxy.cuts == 1
        assert [str(message.content) for message in chat.messages if message.role == "user"] == ["only once"]
        assert chat.held_count == 0


async def test_of_two_clients_that_decide_one_wins_and_the_other_is_told(server: Process, chat_id: str) -> None:
    async with (
        Client(server.url) as client,
        Client(server.url) as other,
        client.chat(chat_id) as chat,
        other.chat(chat_id) as there,
    ):
        with anyio.fail_after(DEADLINE_SECONDS):
            answer = chat.ask('call write_note {"text":"x"}', params={"model": "demo/tools?rate=0"})
            for each in (chat, there):
                await each.until(lambda state: state.runtime.paused)
            (question,) = there.questions
            decisions = [each.decide(question.tool_call_id, accepted=True) for each in (chat, there)]
            outcomes: list[bool] = []
            for decision in decisions:
                try:
                    outcomes.append((await decision).accepted)
                except NoPendingDecision:
                    outcomes.append(False)
            assert sorted(outcomes) == [False, True]
            await answer
            await there.at_rest()
            await chat.at_rest()
        assert encode(snapshot_of(chat.state)) == encode(snapshot_of(there.state))


async def test_several_chats_share_a_connection_and_one_that_is_deleted_leaves_the_others_alone(
    server: Process, chat_id: str
) -> None:
    first, second, third = (f"{chat_id}-{number}" for number in range(3))
    async with Client(server.url, retry_policy=QUICK) as client, client.chats([first, second]) as chats:
        with anyio.fail_after(DEADLINE_SECONDS):
            added = await chats.add(third)
            for chat in (chats[first], chats[second], added):
                assert await chat.ask(f"I am {chat.id}") == f"You said: I am {chat.id}"
                assert await is_the_servers(client, chat)
            await client.request("DELETE", f"/v1/chats/{second}")
            with pytest.raises(NotFound):
                await chats[second].until(lambda _: False)
            assert await added.ask("still here") == "You said: still here"
            await chats.remove(third)
            assert set(chats) == {first, second}
    with pytest.raises(NotFound):
        async with Client(server.url) as client, client.chat(second):
            pass


async def test_an_aborted_answer_is_told_as_such_with_what_was_said(server: Process, chat_id: str) -> None:
    async with Client(server.url) as client, client.chat(chat_id) as chat:
        with anyio.fail_after(DEADLINE_SECONDS):
            answer = chat.ask("go on and on", **SLOWLY)
            with pytest.raises(AnswerFailed) as caught:
                async for _ in answer:
                    chat.abort()
        assert caught.value.outcome == "aborted"
        assert caught.value.text == str(chat.messages[-1].content)


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def arguments(tmp_path: Path, port: int) -> list[str]:
    config = tmp_path / "threadcast.toml"
    config.write_text('[tools.open_file]\npolicy = "client"\ndescription = "Opens a file in the editor."\n')
    return ["serve", "--port", str(port), "--data-dir", str(tmp_path / "data"), "--config", str(config)]


@pytest.fixture
def first_life(arguments: list[str], tmp_path: Path) -> Iterator[Process]:
    with start(*arguments, log=tmp_path / "log") as process:
        yield process


@pytest.mark.slow
async def test_a_server_killed_in_mid_answer_costs_the_client_nothing(
    first_life: Process, arguments: list[str], tmp_path: Path
) -> None:
    await first_life.ready()
    told: list[Connection] = []
    async with (
        Client(first_life.url, retry_policy=QUICK) as client,
        client.chat("killed", on_state=told.append) as chat,
    ):
        with anyio.fail_after(60):
            answer = chat.ask("tell me", **SLOWLY)
            async for event in chat.events():
                if isinstance(event, StreamDelta):
                    break
            first_life.kill()
            await chat.until(lambda _: chat.connection.state == "offline")
            held = chat.send("said while nobody was there")
            assert (chat.held_count, held.ack) == (1, None)
            with start(*arguments, log=tmp_path / "log") as second:
                await second.ready()
                whole = await answer
                assert (await held).accepted
                await chat.at_rest()
                assert whole in [str(message.content) for message in chat.messages]
                asked = [str(message.content) for message in chat.messages if message.role == "user"]
                assert asked == ["tell me", "said while nobody was there"]
                assert await is_the_servers(client, chat)
    assert told[0].state == "catching_up"
    assert {str(state) for state in told} >= {"live", "live, 1 to send"}
    assert any(state.state == "offline" and state.held_count == 1 for state in told)


async def test_a_clients_tool_is_claimed_run_and_answered(first_life: Process) -> None:
    await first_life.ready()
    ran: list[str] = []

    async def open_file(path: str) -> ToolAnswer:
        ran.append(path)
        return ToolAnswer(content="print(1)")

    async with (
        Client(first_life.url) as client,
        Client(first_life.url) as other,
        client.chat("ide") as chat,
        other.chat("ide") as there,
    ):
        for each in (chat, there):
            each.on_tool_call("open_file", open_file)
        with anyio.fail_after(DEADLINE_SECONDS):
            answer = chat.ask('call open_file {"path":"a.py"}', params={"model": "demo/tools?rate=0"})
            assert await answer == "The tools have answered.\n\n- open_file: print(1)"
            await there.at_rest()
    assert ran == ["a.py"]


async def test_a_tool_that_raises_tells_the_model_why(first_life: Process) -> None:
    await first_life.ready()

    def open_file(path: str) -> str:
        raise FileNotFoundError(f"{path} is not there")

    async with Client(first_life.url) as client, client.chat("ide") as chat:
        chat.on_tool_call("open_file", open_file)
        with anyio.fail_after(DEADLINE_SECONDS):
            await chat.ask('call open_file {"path":"a.py"}', params={"model": "demo/tools?rate=0"})
        (result,) = [message for message in chat.messages if message.role == "tool"]
        assert (result.tool_failed, "a.py is not there" in str(result.content)) == (True, True)


PROGRAM = """
import anyio, sys
from threadcast import Client, FileOutbox
async def main(url, file):
    async with Client(url, outbox=FileOutbox(file)) as client, client.chat("later", wait=False) as chat:
        for text in ("first", "second"):
            chat.send(text)
        print("sent", flush=True)
        await anyio.sleep_forever()
anyio.run(main, *sys.argv[1:])
"""


async def test_what_a_killed_program_had_sent_goes_out_when_the_next_one_begins(
    first_life: Process, port: int, tmp_path: Path
) -> None:
    file = tmp_path / "outbox.jsonl"
    nobody = "http://127.0.0.1:9"  # the discard port: refused
    with anyio.fail_after(DEADLINE_SECONDS):
        async with await anyio.open_process([sys.executable, "-c", PROGRAM, nobody, str(file)], cwd=ROOT) as program:
            assert program.stdout is not None
            assert (await program.stdout.receive()).startswith(b"sent")
            program.kill()
    await first_life.ready()
    outbox = FileOutbox(file)
    assert outbox.chats() == ["later"]
    async with Client(first_life.url, outbox=outbox) as client, client.chat("later") as chat:
        await chat.at_rest(DEADLINE_SECONDS)
        said = [str(message.content) for message in chat.messages if message.role == "user"]
    assert said == ["first", "second"]
    assert outbox.chats() == []
    outbox.close()
