"""The requests of Open WebUI, as its source makes them, against the door of Chat Completions.

The requests are written by hand after Open WebUI 0.6 to 0.12 (`backend/open_webui/routers/openai.py` and
`routers/tasks.py`). A message is a streamed request with the whole history and usage. The tasks for a title, for tags
and for follow-ups are requests without a stream, with one message of the user that quotes the conversation. With the
setting ENABLE_FORWARD_USER_INFO_HEADERS, all of these requests have the header `X-OpenWebUI-Chat-Id`. The package
itself has 109 dependencies, among them those of local models, which is too much for these tests.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from tests.support.reader import watching
from tests.support.server import DEADLINE_SECONDS, Process, serving
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio

CHAT = "5f0c6c0e-6c0a-4f0e-9a53-0d3a3b1f1c11"
HEADERS = {
    "Authorization": "Bearer none",
    "X-OpenWebUI-User-Name": "Ann",
    "X-OpenWebUI-User-Id": "u-1",
    "X-OpenWebUI-User-Email": "ann@example.org",
    "X-OpenWebUI-User-Role": "user",
    "X-OpenWebUI-Chat-Id": CHAT,
}
CONFIG = '[doors.openai]\nchat_id_header = "X-OpenWebUI-Chat-Id"\n'
MODEL = "demo/echo?rate=0"


class Front:
    """Makes the requests of Open WebUI, which holds its own copy of the conversation."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._http = http
        self.messages: list[JsonObject] = []

    async def say(self, text: str) -> str:
        """Send a message of the user, and keep its answer."""
        self.messages.append({"role": "user", "content": text})
        return await self.answer()

    async def answer(self) -> str:
        """Ask for an answer to the last message, for the first time or again."""
        body = {
            "stream": True,
            "model": MODEL,
            "messages": [{"role": "system", "content": "Answer kindly."}, *self.messages],
            "stream_options": {"include_usage": True},
        }
        said, usage = "", None
        async with self._http.stream("POST", "/v1/chat/completions", json=body) as answer:
            assert answer.status_code == 200
            async for line in answer.aiter_lines():
                if line.startswith("data: {"):
                    chunk = json.loads(line[6:])
                    usage = chunk.get("usage") or usage
                    said += "".join(each["delta"].get("content") or "" for each in chunk["choices"])
        assert usage is not None and usage["completion_tokens"] > 0
        self.messages.append({"role": "assistant", "content": said})
        return said

    async def task(self, name: str) -> str:
        """Send a task about the conversation: a title, tags, follow-ups."""
        quoted = "\n".join(f"{each['role'].upper()}: {each['content']}" for each in self.messages)
        prompt = f"### Task:\nGenerate {name}.\n### Chat History:\n<chat_history>\n{quoted}\n</chat_history>"
        body: JsonObject = {"model": MODEL, "messages": [{"role": "user", "content": prompt}], "stream": False}
        if name == "a title":
            body["max_completion_tokens"] = 1000
        answer = await self._http.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        said: str = answer.json()["choices"][0]["message"]["content"]
        return said


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Process]:
    async with serving(tmp_path, config=CONFIG) as process:
        yield process


async def test_one_conversation_is_one_chat(server: Process) -> None:
    async with httpx2.AsyncClient(base_url=server.url, timeout=DEADLINE_SECONDS, headers=HEADERS) as http:
        front = Front(http)
        assert await front.say("hello") == "You said: hello"
        for name in ("a title", "tags", "follow-ups"):
            assert "### Task:" in await front.task(name)
        await front.say("and more")
        await front.task("a title")
        front.messages.pop()  # the same answer is requested again
        await front.answer()
        front.messages[2:] = [{"role": "user", "content": "and less"}]  # the second message is edited
        await front.answer()
        listed = (await http.get("/v1/chats")).json()["items"]
        tree = (await http.get(f"/v1/chats/{CHAT}?view=tree")).text
        async with watching(server.url, CHAT) as tab:
            assert tab.messages == [(each["role"], each["content"]) for each in front.messages]
    assert [chat["id"] for chat in listed] == [CHAT]
    assert "and more" in tree and "### Task" not in tree


async def test_the_first_question_is_asked_again_in_the_same_chat(server: Process) -> None:
    async with httpx2.AsyncClient(base_url=server.url, timeout=DEADLINE_SECONDS, headers=HEADERS) as http:
        front = Front(http)
        await front.say("hello")
        front.messages.pop()
        await front.answer()
        await front.say("next")
        tree = (await http.get(f"/v1/chats/{CHAT}?view=tree")).json()
        async with watching(server.url, CHAT) as tab:
            assert tab.messages == [(each["role"], each["content"]) for each in front.messages]
        assert [chat["id"] for chat in (await http.get("/v1/chats")).json()["items"]] == [CHAT]
    assert json.dumps(tree).count('"You said: hello"') == 2
