"""A chat that is long enough for a `KeptView`: each request has exactly the messages of its path, whatever was
edited."""

from pathlib import Path

import httpx2
import pytest

from tests.integration.fake_openai import DONE, STOP, FakeOpenAI, Reply, text
from tests.support.reader import Watcher, watching
from tests.support.server import command, serving, user_message
from threadcast.agent_loop.history.kept_view import KEPT_MIN_COUNT
from threadcast.chat.exports import ChatExport, export_lines
from threadcast_protocol.fold.snapshot import snapshot_of
from threadcast_protocol.wire.messages import JsonObject, Message
from threadcast_protocol.wire.thread import ThreadChanges

pytestmark = pytest.mark.anyio

COUNT = KEPT_MIN_COUNT + 20


def exported(chat_id: str) -> bytes:
    messages = [
        Message(
            role="assistant" if number % 2 else "user",
            content=f"{chat_id}, text {number}",
            message_id=f"m{number}",
            parent_id=f"m{number - 1}" if number else None,
        )
        for number in range(COUNT)
    ]
    chat = ChatExport(chat_id=chat_id, thread=ThreadChanges(), leaf_id=messages[-1].message_id, messages=messages)
    return b"".join(export_lines(chat))


def told(watcher: Watcher) -> list[tuple[str, object]]:
    """Return the path as a model reads it."""
    assert watcher.state is not None
    return [(message.role, message.content) for message in snapshot_of(watcher.state).messages]


async def test_each_request_of_a_long_chat_has_the_messages_of_its_path(tmp_path: Path, fake: FakeOpenAI) -> None:
    environment = {"OPENAI_BASE_URL": fake.base_url, "OPENAI_API_KEY": "none", "OPENAI_MODEL": "tiny"}
    async with serving(tmp_path, environment=environment) as server, httpx2.AsyncClient() as client:
        for chat_id in ("c1", "c2"):
            answer = await client.post(f"{server.url}/v1/chats/import", content=exported(chat_id))
            assert answer.json()["imported"] == [chat_id]
        async with watching(server.url, "c1") as first, watching(server.url, "c2") as second:

            async def post(chat_id: str, body: JsonObject) -> None:
                assert (await command(server.url, chat_id, body)).status_code == 202

            async def asks(watcher: Watcher, chat_id: str, body: JsonObject) -> None:
                """Post a command that starts a run, and compare the request with the path before the answer."""
                asked_count = len(fake.asked)
                fake.replies = [Reply([text(f"answer {asked_count}"), STOP, DONE])]
                await post(chat_id, body)
                await watcher.until(lambda w: told(w)[-1] == ("assistant", f"answer {asked_count}"))
                await watcher.until(lambda w: w.frames[-1].get("outcome") == "complete")
                [asked] = fake.asked[asked_count:]
                sent = [(each["role"], each["content"]) for each in asked.body["messages"] if each["role"] != "system"]
                assert sent == told(watcher)[:-1]

            def named(kind: str, **fields: object) -> JsonObject:
                return {"type": kind, "client_request_id": f"{kind}-{len(fake.asked)}", **fields}

            for number in range(3):
                await asks(first, "c1", user_message(f"a{number}", f"question {number}"))
                await asks(second, "c2", user_message(f"a{number}", f"question {number}"))
            assert first.state is not None
            await post("c1", named("update_message", message_id=first.state.path[10], content="edited"))
            await asks(first, "c1", user_message("b", "after an edit"))
            assert ("user", "edited") in told(first)
            await asks(first, "c1", named("regenerate"))
            leaf = first.state.path[-1]
            await asks(first, "c1", named("retry_from_index", index=KEPT_MIN_COUNT + 4, content="another branch"))
            await post("c1", named("select_branch", message_id=leaf))
            await asks(first, "c1", user_message("c", "on the first branch again"))
            await asks(second, "c2", user_message("c", "and here"))
