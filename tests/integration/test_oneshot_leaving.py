"""One-shot answers that end before their run: callers that disconnect, queues, approvals, and deleted chats."""

from contextlib import suppress

import anyio
import httpx2
import pytest

from tests.integration.oneshot_client import PATHS, Shown, ask, body_for, opened, prepare
from tests.support.reader import watching
from tests.support.server import Process, command, user_message

pytestmark = pytest.mark.anyio


@pytest.mark.row("NET-5")
@pytest.mark.parametrize("path", PATHS)
async def test_a_caller_that_leaves_aborts_its_own_run(server: Process, chat_id: str, path: str) -> None:
    await prepare(server, chat_id, "demo/hang?after=2&rate=0")
    async with watching(server.url, chat_id) as watcher:
        async with opened(server.url, path, body_for(path, "x", chat_id)):
            await watcher.until(lambda w: "stream_delta" in w.types())
        await watcher.at_rest()
    assert watcher.state is not None and watcher.state.runtime.outcome == "aborted"


@pytest.mark.row("NET-5")
async def test_a_caller_that_waits_for_json_and_leaves_aborts_too(server: Process, chat_id: str) -> None:
    await prepare(server, chat_id, "demo/hang?after=2&rate=0")
    async with watching(server.url, chat_id) as watcher, anyio.create_task_group() as tasks:

        async def wait() -> None:
            with suppress(httpx2.TransportError):
                await ask(server.url, "/chat", body_for("/chat", "x", chat_id), {"Accept": "application/json"})

        tasks.start_soon(wait)
        await watcher.until(lambda w: "stream_delta" in w.types())
        tasks.cancel_scope.cancel()
    async with watching(server.url, chat_id) as watcher:
        await watcher.at_rest()
    assert watcher.state is not None and watcher.state.runtime.outcome == "aborted"


@pytest.mark.row("NET-5")
@pytest.mark.parametrize("in_body", [True, False])
async def test_a_detached_run_goes_on_without_its_caller(server: Process, chat_id: str, in_body: bool) -> None:
    await prepare(server, chat_id, "demo/essay?words=30&rate=60")
    body = {**body_for("/chat", "x", chat_id), **({"on_disconnect": "detach"} if in_body else {})}
    path = "/chat" if in_body else "/chat?on_disconnect=detach"
    async with watching(server.url, chat_id) as watcher:
        async with opened(server.url, path, body):
            await watcher.until(lambda w: "stream_delta" in w.types())
        await watcher.at_rest()
    assert watcher.state is not None and watcher.state.runtime.outcome == "complete"
    assert len(watcher.messages[-1][1].split()) == 30


async def test_behind_a_running_run_each_message_waits_and_gets_an_answer_of_its_own(
    server: Process, chat_id: str
) -> None:
    await prepare(server, chat_id, "demo/echo")
    async with watching(server.url, chat_id) as watcher:
        await command(
            server.url, chat_id, user_message("first", "one", params={"model": "demo/essay?words=40&rate=40"})
        )
        await watcher.until(lambda w: "stream_delta" in w.types())
        async with anyio.create_task_group() as tasks:

            async def one(path: str, text: str) -> None:
                shown = await ask(server.url, path, body_for(path, text, chat_id))
                assert f"You said: {text}" in said_in(shown)
                assert said_in(shown).count("You said") == 1

            for path in ("/chat", "/v1/agent/chat", "/api/chat/stream"):
                tasks.start_soon(one, path, f"hello-{path}")
        await watcher.at_rest(4)
    assert [role for role, _ in watcher.messages] == ["user", "assistant"] * 4


def said_in(shown: Shown) -> str:
    """Return the text of an answer in one of the three formats other than OpenAI's."""
    pieces = [body.get("chunk", "") + (body.get("text") or "") for body in shown.bodies]
    return shown.text() + "".join(pieces)


@pytest.mark.row("NET-5")
async def test_leaving_while_the_message_waits_takes_it_back_and_spares_the_running_run(
    server: Process, chat_id: str
) -> None:
    await prepare(server, chat_id, "demo/hang?after=2&rate=0")
    async with watching(server.url, chat_id) as watcher:
        await command(server.url, chat_id, user_message("first", "one"))
        await watcher.until(lambda w: "stream_delta" in w.types())
        async with opened(server.url, "/chat", body_for("/chat", "two", chat_id)):
            await watcher.until(lambda w: w.state is not None and w.state.runtime.queue_size == 1)
        await watcher.until(lambda w: w.state is not None and w.state.runtime.queue_size == 0)
        assert watcher.state is not None and watcher.state.draft is not None, "the first answer goes on"
        assert "stream_finished" not in watcher.types()
        await command(server.url, chat_id, {"type": "abort", "client_request_id": "stop"})
        await watcher.at_rest()
    assert [text for role, text in watcher.messages if role == "user"] == ["one"]


@pytest.mark.parametrize("path", PATHS)
async def test_a_run_that_needs_approval_ends_the_answer_clearly_and_still_waits(
    server: Process, chat_id: str, path: str
) -> None:
    await prepare(server, chat_id, "demo/tools")
    shown = await ask(server.url, path, body_for(path, "call asks {}", chat_id))
    told = next(frame.data for frame in shown.frames if "waiting for approval" in frame.data.lower())
    assert path == "/v1/agent/chat" or (f"/c/{chat_id}]" if "completions" in path else "conflict") in told
    async with watching(server.url, chat_id) as watcher:
        assert watcher.state is not None and watcher.state.runtime.paused
        async with opened(server.url, path, body_for(path, "and now?", chat_id)) as answer:
            assert answer.status_code == 409
        (reason,) = watcher.state.runtime.pause_reasons
        decision = {"tool_call_id": reason.tool_call_id, "accepted": True}
        await command(server.url, chat_id, {"type": "tool_decision", "client_request_id": "d", **decision})
        await watcher.at_rest()
    assert watcher.state.runtime.outcome == "complete"


async def test_a_chat_deleted_in_the_middle_ends_the_answer_with_an_error(
    server: Process, client: httpx2.AsyncClient, chat_id: str
) -> None:
    await prepare(server, chat_id, "demo/hang?after=2&rate=0")
    async with watching(server.url, chat_id) as watcher, anyio.create_task_group() as tasks:

        async def read() -> None:
            shown = await ask(server.url, "/chat", body_for("/chat", "x", chat_id))
            assert [error["code"] for error in shown.of("error")] == ["not_found"]
            assert shown.events[-1] == "done"

        tasks.start_soon(read)
        await watcher.until(lambda w: "stream_delta" in w.types())
        assert (await client.delete(f"/v1/chats/{chat_id}")).status_code == 200
