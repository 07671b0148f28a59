"""Forks and continued answers over real HTTP: copies under new ids, and messages that continue (PROTOCOL §2)."""

import pytest

from tests.support.reader import Watcher, watching
from tests.support.server import Process, command, user_message
from threadcast_protocol.fold.snapshot import snapshot_of
from threadcast_protocol.wire.messages import JsonObject, Message

pytestmark = pytest.mark.anyio

WAIT = {"Prefer": "wait=5"}
ESSAY = "demo/essay?words=160&rate=60"


def path_of(watcher: Watcher) -> list[Message]:
    assert watcher.state is not None
    return snapshot_of(watcher.state).messages


def fork_of(source: str, message_id: str, request_id: str = "fork") -> JsonObject:
    names = {"source_chat_id": source, "up_to_message_id": message_id}
    return {"type": "branch_from_chat", "client_request_id": request_id, **names}


@pytest.mark.row("CMD-12")
async def test_a_fork_is_a_chat_of_its_own_with_copies_of_the_path(server: Process, chat_id: str) -> None:
    new_id = f"{chat_id}-fork"
    async with watching(server.url, chat_id) as source, watching(server.url, new_id) as fork:
        for number, text in enumerate(["one", "two"], start=1):
            await command(server.url, chat_id, user_message(text, text))
            await source.at_rest(number)
        before = source.snapshot
        one, answer, _, _ = path_of(source)
        said = await command(server.url, new_id, fork_of(chat_id, answer.message_id), WAIT)
        assert (said.status_code, said.json()["accepted"]) == (200, True)
        await fork.until(lambda w: len(path_of(w)) == 2)
        assert [(m.role, m.content) for m in path_of(fork)] == [(m.role, m.content) for m in (one, answer)]
        assert {m.message_id for m in path_of(fork)}.isdisjoint({one.message_id, answer.message_id})
        assert fork.state is not None
        assert fork.state.thread.forked_from == {"chat_id": chat_id, "message_id": answer.message_id}
        await command(server.url, new_id, user_message("on", "only here"))
        await fork.until(lambda w: w.frames[-1].get("outcome") == "complete")
        async with watching(server.url, chat_id) as again:
            assert again.snapshot == before == source.snapshot, "the source knows nothing of it"
        async with watching(server.url, new_id) as fresh:
            assert fresh.snapshot == fork.snapshot
    assert [text for role, text in fork.messages if role == "user"] == ["one", "only here"]


@pytest.mark.row("CMD-12")
async def test_a_fork_of_what_is_not_there_is_accepted_and_then_refused(server: Process, chat_id: str) -> None:
    async with watching(server.url, chat_id) as source:
        await command(server.url, chat_id, user_message("a", "one"))
        await source.at_rest()
    for number, (chat, message) in enumerate([("never-was", "m1"), (chat_id, "m1")]):
        new_id = f"{chat_id}-{number}"
        async with watching(server.url, new_id) as fork:
            assert (await command(server.url, new_id, fork_of(chat, message))).status_code == 202
            await fork.until(lambda w: "ack" in w.types())
        assert (fork.frames[-1]["accepted"], fork.frames[-1]["result"]["code"]) == (False, "not_found")
        assert fork.messages == []


@pytest.mark.row("CMD-6")
async def test_an_aborted_answer_is_written_on_in_the_same_message(server: Process, chat_id: str) -> None:
    async with watching(server.url, f"{chat_id}-whole") as whole:
        await command(server.url, f"{chat_id}-whole", user_message("a", "write", params={"model": ESSAY}))
        await whole.at_rest()
    async with watching(server.url, chat_id) as tab:
        await command(server.url, chat_id, {"type": "set_params", "client_request_id": "p", "patch": {"model": ESSAY}})
        await command(server.url, chat_id, user_message("a", "write"))
        await tab.until(lambda w: w.types().count("stream_delta") >= 3)
        await command(server.url, chat_id, {"type": "abort", "client_request_id": "stop"})
        await tab.at_rest()
        partial = path_of(tab)[-1]
        assert isinstance(partial.content, str)
        assert partial.content and whole.messages[1][1].startswith(partial.content) and partial.status == "partial"
        since = len(tab.frames)
        more = {"type": "continue_message", "client_request_id": "more", "message_id": partial.message_id}
        await command(server.url, chat_id, more)
        await tab.until(lambda w: w.frames[-1].get("outcome") == "complete")
        started = next(frame for frame in tab.frames[since:] if frame["type"] == "stream_started")
        assert (started["message_id"], started["append"]) == (partial.message_id, True)
        said = [
            op["text"] for f in tab.frames[since:] if f["type"] == "stream_delta" for op in f["ops"] if "text" in op
        ]
        assert partial.content + "".join(said) == whole.messages[1][1], "nothing is said twice"
        assert tab.messages == whole.messages
        assert path_of(tab)[-1].message_id == partial.message_id
        async with watching(server.url, chat_id) as fresh:
            assert fresh.snapshot == tab.snapshot
