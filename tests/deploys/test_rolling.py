"""A rolling deploy under load: every web process and every worker is replaced, one after another, while people talk.

Each reader keeps one stream at one web process. When the server closes the stream, the reader waits for the requested
time and resumes at the next process with its last id, as EventSource does behind a balancer. No event may be lost,
shown twice or reset: each chat has one snapshot, one sequence without a gap, and the texts of undisturbed runs. Posts
go to any running web process, and are repeated with the same id when a connection breaks.
"""

import contextlib
import re
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.support.fleet import Fleet
from tests.support.reader import TimedWatcher, watching
from tests.support.server import DEADLINE_SECONDS, Process, ask, command, user_message
from threadcast_protocol.framing.sse import EventFrame, FrameParser

pytestmark = [pytest.mark.anyio, pytest.mark.slow(25)]

TOOLS = Path(__file__).with_name("deploy_tools.py")
CHATS = 6
ROUNDS_MIN = 2
MODEL = "demo/essay?words=60&rate=60&seed={}"
RETRY_BYTES = re.compile(rb"\nretry: (\d+)\n$")


class Front:
    """The running web processes; `any` returns each process in turn, as a load balancer does."""

    def __init__(self, webs: list[Process]) -> None:
        self.webs = webs
        self._turn = 0

    def any(self) -> str:
        self._turn += 1
        return self.webs[self._turn % len(self.webs)].url


class Talk:
    """One chat, with a client that asks again and again and a reader that always reconnects."""

    def __init__(self, front: Front, chat_id: str) -> None:
        self.chat = TimedWatcher(chat_id)
        self.asked = 0
        self.goodbyes_ms: list[int] = []
        self._front = front

    async def watch(self) -> None:
        """Until cancelled."""
        async with httpx2.AsyncClient(timeout=httpx2.Timeout(DEADLINE_SECONDS, read=60)) as client:
            while True:
                pause_ms = 100  # the connection was refused or broken
                with contextlib.suppress(httpx2.TransportError):
                    pause_ms = await self._read(client)
                await anyio.sleep(pause_ms / 1000)

    async def _read(self, client: httpx2.AsyncClient) -> int:
        """Read one stream to its end; returns the milliseconds to wait before the next stream."""
        place = {"Last-Event-ID": self.chat.last_id} if self.chat.last_id else {}
        address = f"{self._front.any()}/v1/chats/subscribe?chat_id={self.chat.chat_id}"
        parser, received = FrameParser(), b""
        async with client.stream("GET", address, headers=place) as answer:
            if answer.status_code == 503:
                return 100
            assert answer.status_code == 200
            async for chunk in answer.aiter_raw():
                received = (received + chunk)[-100:]
                for frame in parser.feed(chunk):
                    if isinstance(frame, EventFrame):
                        self.chat.take(frame)
        found = RETRY_BYTES.search(received)
        assert found is not None, "a stream that the server ends says when to come back"
        self.goodbyes_ms.append(int(found[1]))
        return int(found[1])

    async def ask_until(self, done: anyio.Event) -> None:
        while self.asked < ROUNDS_MIN or not done.is_set():
            self.asked += 1
            await self._post(f"r{self.asked}", MODEL.format(self.asked))
            await self.chat.at_rest(self.asked, 3 * DEADLINE_SECONDS)

    async def _post(self, request_id: str, model: str) -> None:
        body = user_message(request_id, "write", params={"model": model})
        with anyio.fail_after(DEADLINE_SECONDS):
            while True:
                try:
                    answer = await command(self._front.any(), self.chat.chat_id, body)
                except httpx2.TransportError:
                    await anyio.sleep(0.1)
                    continue
                if answer.status_code != 503:
                    assert answer.status_code in (200, 202), answer.text
                    return
                await anyio.sleep(0.1)


@pytest.mark.row("NET-8", "SES-4")
async def test_everything_is_replaced_under_load_and_nobody_notices(fleet: Fleet) -> None:
    front = Front([await fleet.add_web(), await fleet.add_web()])
    for _ in range(2):
        await fleet.add_worker(TOOLS)
    talks = [Talk(front, f"c{number}") for number in range(CHATS)]
    done = anyio.Event()
    async with anyio.create_task_group() as watching_all:
        for talk in talks:
            watching_all.start_soon(talk.watch)
        async with anyio.create_task_group() as asking_all:
            for talk in talks:
                asking_all.start_soon(talk.ask_until, done)
            for talk in talks:
                await talk.chat.until(lambda w: w.types().count("stream_delta") > 2)
            for old_web, old_worker in zip(list(front.webs), list(fleet.workers), strict=True):
                await fleet.add_worker(TOOLS)
                assert await old_worker.stop() == 0
                fleet.workers.remove(old_worker)
                new_web = await fleet.add_web()
                front.webs = [*(web for web in front.webs if web is not old_web), new_web]
                assert await old_web.stop() == 0
            done.set()
        watching_all.cancel_scope.cancel()

    longest = max(talk.asked for talk in talks)
    expected: list[tuple[str, str]] = []
    async with watching(front.any(), "reference") as reference:
        for number in range(1, longest + 1):
            model = MODEL.format(number).replace("rate=60", "rate=0")
            await ask(front.any(), "reference", "write", model, f"r{number}")
            await reference.at_rest(number)
        expected = reference.messages
    assert sum(len(talk.goodbyes_ms) for talk in talks) >= CHATS, "every reader was sent away at least once"
    for talk in talks:
        assert talk.chat.snapshots == 1
        assert talk.chat.messages == expected[: 2 * talk.asked]
        assert "message_removed" not in talk.chat.types()
        async with watching(front.any(), talk.chat.chat_id) as late:
            assert late.snapshot == talk.chat.snapshot
