"""Everything that a principal can own, with a secret in each: chats of every kind and state, blobs, streams, keys."""

import base64
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import NamedTuple

import anyio
import httpx2

from tests.fuzz.principals.canaries import Canaries, strings_of
from tests.fuzz.principals.served import OWNER, bearer
from tests.integration.mcp_servers import PIXEL
from tests.support.server import DEADLINE_SECONDS
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["Owned", "Pools"]

ECHO, TOOLS, HANG = "demo/echo?rate=0", "demo/tools?rate=0", "demo/hang?after=3&rate=0"

LONG_TEXT = " of a text that is stored as a blob, because it is long" * 400

_PER_CHAT = ("", "?view=tree", "/export", "/params", "/approvals", "/questions", "/runs")


class Pools(NamedTuple):
    """The ids of chats that a caller puts into requests, and the caller's other values by the name of their
    parameter."""

    chat_ids: list[str]
    values: dict[str, list[str]]


class Owned:
    """All data of the owner. `chats` maps each purpose to the id of a chat."""

    def __init__(self, urls: Sequence[str], random: Random) -> None:
        self.canaries = Canaries(random)
        self.chats: dict[str, str] = {}
        self._urls = urls
        self._random = random
        self._blobs: list[str] = []
        self._deleted = self._unborn = ""
        self._forwarded = self.canaries.content("forwarded credential")
        self.coming = [self.canaries.id("id of a chat that is not yet begun") for _ in range(30)]
        self._stream_id = self.canaries.id("name of a stream")
        self._request_ids: list[str] = []
        self._positions: list[str] = []
        self._client = httpx2.AsyncClient(headers=bearer(OWNER), timeout=DEADLINE_SECONDS)

    async def make(self) -> None:
        """Make all of the owner's data, in a few seconds."""
        await self._make_texts()
        await self._make_tool_chats()
        await self._make_waiting_chats()
        await self._make_copies()
        await self._make_oneshots()
        await self._make_blobs()
        for chat_id in self.chats.values():
            chat = json.loads(await self._get(f"/v1/chats/{chat_id}"))
            self._positions.append(chat["id"])
            for key, value in strings_of([chat, json.loads(await self._get(f"/v1/chats/{chat_id}/runs"))]):
                if key.endswith("_id"):
                    self.canaries.learn_id(value, f"{key} of the server")

    async def close(self) -> None:
        """Stop runs that have not ended, so that the next round finds a quiet server."""
        for chat_id in self.chats.values():
            await self._post(chat_id, {"type": "abort", "clear_queue": True}, {200, 202})
        await self._client.aclose()

    # The pictures and ids of the owned data.

    async def pictures(self) -> dict[str, bytes]:
        """Return the bytes of all answers that show the owner's chats; they are equal before and after an attack that
        changed nothing."""
        paths = [f"/v1/chats/{chat_id}{end}" for chat_id in self.chats.values() for end in _PER_CHAT]
        paths += [f"/v1/trajectories/{chat_id}" for chat_id in self.chats.values()]
        paths += [*self._blobs, "/v1/chats?limit=200", "/v1/trajectories?limit=200"]
        for chat_id in self.chats.values():
            runs = json.loads(await self._get(f"/v1/chats/{chat_id}/runs"))["runs"]
            paths += [f"/v1/chats/{chat_id}/runs/{run['run_id']}/diagnostics" for run in runs]
            paths.append(f"/v1/chats?parent_id={chat_id}")
        pictures = {path: await self._get(path) for path in paths}
        gone = await self._client.get(f"{self._url()}/v1/chats/{self._deleted}")
        assert gone.status_code == 404, "the deleted chat is there again"
        return pictures

    def pools(self) -> Pools:
        """Return the ids that another caller may know, by the parameter of a request that takes them."""
        ids = self.canaries.ids
        chats = [*self.chats.values(), self._deleted, self._unborn]
        of_server = [each for each in ids if each not in (*chats, *self.coming)]
        return Pools(
            chats,
            {
                "chat_id": chats,
                "parent_id": chats,
                "hash": [url.rpartition("/")[2] for url in self._blobs],
                "run_id": [each for each in of_server if each.startswith("run")] or of_server,
                "message_id": [each for each in of_server if each.startswith("msg")] or of_server,
                "tool_call_id": of_server,
                "payload_id": of_server,
                "client_request_id": self._request_ids,
                "stream_id": [self._stream_id],
                "position": self._positions,
            },
        )

    # The owner's stream, which other callers try to change.

    @asynccontextmanager
    async def streaming(self) -> AsyncIterator[Callable[[], bool]]:
        """Keep a named stream with presence open; yields a function that tells whether the stream is still open."""
        ended = anyio.Event()

        async def read() -> None:
            query = "&".join(f"chat_id={chat_id}" for chat_id in self.chats.values())
            path = f"/v1/chats/subscribe?{query}&presence=1&stream_id={self._stream_id}"
            async with self._client.stream("GET", self._url() + path) as answer:
                assert answer.status_code == 200
                opened.set()
                async for _ in answer.aiter_raw():
                    pass
            ended.set()

        async with anyio.create_task_group() as tasks:
            opened = anyio.Event()
            tasks.start_soon(read)
            with anyio.fail_after(DEADLINE_SECONDS):
                await opened.wait()
            yield lambda: not ended.is_set()
            tasks.cancel_scope.cancel()

    async def live(self) -> None:
        """Begin, use and delete the next chat of `coming`; other callers already watch its id."""
        if self.coming:
            chat_id = self.coming.pop()
            await self._say(chat_id, self.canaries.content("text of a chat that others watched before it began"))
            await self._post(chat_id, {"type": "set_params", "patch": {"title": self.canaries.content("late title")}})
            await self._client.delete(f"{self._url()}/v1/chats/{chat_id}")

    async def type(self) -> None:
        """Send a typing report in a chat, which readers with presence receive."""
        body = {"typing": bool(self._random.getrandbits(1)), "stream_id": self._stream_id}
        chat_id = self.chats["texts"]
        answer = await self._client.post(f"{self._url()}/v1/chats/{chat_id}/typing", json=body)
        assert answer.status_code == 204, answer.text

    # The steps of `make`.

    async def _make_texts(self) -> None:
        new, chat_id = self.canaries.content, self._begin("texts")
        patch = {
            "title": f"A title {new('title')}",
            "custom_instructions": new("custom instructions"),
            "metadata": {new("name of metadata"): new("metadata")},
            "context": {"page": new("context of the thread")},
        }
        await self._post(chat_id, {"type": "set_params", "patch": patch}, {200})
        await self._say(
            chat_id,
            f"What about {new('text of a message')}?",
            context={"page": {"name": new("context of a page")}},
            context_files=[{"file_name": new("name of a context file"), "file_content": new("context file")}],
            interaction={"type": "form_submitted", "action": new("action"), "data": {"field": new("data of a form")}},
            attachments=[
                {"type": "file", "name": f"{new('name of a file')}.txt", "mime": "text/plain", "text": new("file")},
                {
                    "type": "file",
                    "name": f"{new('name of a long file')}.txt",
                    "mime": "text/plain",
                    "text": new("long file") + LONG_TEXT,
                },
                {
                    "type": "mcp_prompt",
                    "server": "desk",
                    "name": "greet",
                    "args": {"name": new("argument of a prompt")},
                },
            ],
        )
        failed = self._begin("failed")
        await self._say(failed, new("text of a failed run"), params={"model": f"demo/{new('name of a model')}"})
        deleted = self._deleted = self._begin("deleted")
        await self._say(deleted, new("text of a deleted chat"))
        await self._client.delete(f"{self._url()}/v1/chats/{self.chats.pop('deleted')}")
        await self._client.get(f"{self._url()}/v1/nothing/{new('unknown path')}?q={new('unknown query')}")

    async def _make_tool_chats(self) -> None:
        new = self.canaries.content
        decided = self._begin("decided")
        await self._say(decided, self._call("keep_secret", word=new("input"), memory=new("memory")), TOOLS, "paused")
        (reason,) = (await self._runtime(decided))["pause_reasons"]
        shown = {key: reason[key] for key in ("tool_call_id", "input_hash")}
        edited = {"word": new("edited input"), "memory": new("edited memory")}
        decision = {**shown, "accepted": True, "remember": "tool", "note": new("note"), "edited_input": edited}
        await self._post(decided, {"type": "tool_decision", **decision}, {200})
        await self._until(decided, "complete")
        preview = self._begin("preview")
        await self._say(preview, self._call("propose_article", title=new("preview")), TOOLS)
        parent = self._begin("parent")
        child = {"task": f"Say {new('task of a sub-chat')}", "title": new("title of a sub-chat")}
        await self._say(parent, self._call("delegate", **child), TOOLS)
        (begun,) = json.loads(await self._get(f"/v1/chats?parent_id={parent}"))["items"]
        self.chats["child"] = begun["id"]
        self.canaries.learn_id(begun["id"], "id of a sub-chat")

    async def _make_waiting_chats(self) -> None:
        new = self.canaries.content
        paused = self._begin("paused")
        arguments = {"word": new("input that waits"), "memory": new("memory that waits")}
        await self._say(paused, self._call("keep_secret", **arguments), TOOLS, "paused")
        client = self._begin("client tool")
        await self._say(client, self._call("open_file", path=new("path")), TOOLS, "waiting_ide")
        call_id = (await self._runtime(client))["ide_calls"][0]["tool_call_id"]
        claim = {"type": "ide_tool_claim", "tool_call_id": call_id, "claimer": self.canaries.id("claimer")}
        await self._post(client, claim)
        queue = self._begin("queue")
        await self._say(queue, new("text of an open run"), HANG, "generating")
        for number in range(2):
            await self._post(queue, {"type": "user_message", "content": new(f"waiting text {number}")})

    async def _make_copies(self) -> None:
        texts = self.chats["texts"]
        at = json.loads(await self._get(f"/v1/chats/{texts}"))["messages"][-1]["message_id"]
        branch = {"type": "branch_from_chat", "source_chat_id": texts, "up_to_message_id": at}
        await self._post(self._begin("branch"), branch, {200})
        messages = [{"role": "user", "content": self.canaries.content("restored text")}]
        await self._post(self._begin("restored"), {"type": "restore_messages", "messages": messages}, {200})
        exported = (await self._get(f"/v1/chats/{texts}/export")).decode()
        imported = exported.replace(texts, self._begin("imported"))
        answer = await self._client.post(f"{self._url()}/v1/chats/import", content=imported)
        assert answer.json()["imported"], answer.text

    async def _make_oneshots(self) -> None:
        new = self.canaries.content
        bodies: dict[str, JsonObject] = {
            "/v1/agent/chat": {
                "message": new("one-shot"),
                "context_type": "page",
                "context": {"of": new("its context")},
            },
            "/v1/chat/completions": {"messages": [{"role": "user", "content": new("completion")}]},
            "/chat": {"message": new("text chat")},
            "/api/chat/stream": {"message": new("page chat"), "context": {"current_page": "p", "x": new("its page")}},
        }
        for path, body in bodies.items():
            answer = await self._client.post(self._url() + path, json=body, headers={"Accept": "application/json"})
            assert answer.status_code == 200, answer.text
        for item in json.loads(await self._get("/v1/chats?limit=200"))["items"]:
            if item["id"] not in self.chats.values() and item["id"].startswith("chat-"):
                self.canaries.learn_id(item["id"], "id of a one-shot chat")
                self.chats[f"one-shot {len(self.chats)}"] = item["id"]

    async def _make_blobs(self) -> None:
        unborn = self._unborn = self.canaries.id("id of a chat that has only a blob")
        of_chat = (self.chats["texts"], base64.b64decode(PIXEL) + self.canaries.content("picture").encode())
        for chat_id, data in (of_chat, (unborn, self.canaries.content("blob of no chat").encode())):
            answer = await self._client.post(f"{self._url()}/v1/chats/{chat_id}/blobs", content=data)
            assert answer.status_code == 201, answer.text
            self.canaries.learn_id(answer.json()["hash"], "hash of a blob")
            if chat_id != unborn:
                self._blobs.append(answer.json()["url"])
        for line in (await self._get(f"/v1/chats/{self.chats['texts']}/export")).splitlines():
            for key, value in strings_of(json.loads(line)):
                if key in ("text_blob", "blob"):
                    self.canaries.learn_id(value, "hash of a text")
                    self._blobs.append(f"/v1/chats/{self.chats['texts']}/blobs/{value}")

    def _begin(self, name: str) -> str:
        self.chats[name] = self.canaries.id(f"id of the chat: {name}")
        return self.chats[name]

    def _call(self, tool: str, **arguments: str) -> str:
        return f"call {tool} {json.dumps(arguments)}"

    async def _say(self, chat_id: str, text: str, model: str = ECHO, until: str = "complete", **more: object) -> None:
        body: JsonObject = {"type": "user_message", "content": text, "params": {"model": model}, **more}
        await self._post(chat_id, body)
        await self._until(chat_id, until)

    async def _until(self, chat_id: str, wanted: str) -> None:
        with anyio.fail_after(DEADLINE_SECONDS):
            while True:
                runtime = await self._runtime(chat_id)
                has_ended = wanted == "complete" and runtime.get("outcome") is not None
                if has_ended or runtime["state"] == wanted or (wanted == "paused" and runtime.get("paused")):
                    return
                await anyio.sleep(0.02)

    async def _runtime(self, chat_id: str) -> JsonObject:
        answer = await self._client.get(f"{self._url()}/v1/chats/{chat_id}")
        if answer.status_code == 404:
            return {"state": "unborn"}
        runtime: JsonObject = answer.json()["runtime"]
        return runtime

    async def _post(self, chat_id: str, body: JsonObject, statuses: set[int] | None = None) -> None:
        request_id = self.canaries.id("request id")
        self._request_ids.append(request_id)
        forwarded = {"Threadcast-Forward-Authorization": f"Bearer {self._forwarded}"}
        answer = await self._client.post(
            f"{self._url()}/v1/chats/{chat_id}/commands",
            json={"client_request_id": request_id, **body},
            headers={**forwarded, **({"Prefer": "wait=10"} if statuses else {})},
        )
        assert answer.status_code in (statuses or {200, 202}), answer.text

    async def _get(self, path: str) -> bytes:
        answer = await self._client.get(self._url() + path)
        assert answer.status_code == 200, (path, answer.text)
        return answer.content

    def _url(self) -> str:
        """Return the address of any web process, because each process has its own caches."""
        return self._random.choice(self._urls)
