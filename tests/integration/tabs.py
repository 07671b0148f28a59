"""Readers for tests that are not async: streams kept open in a separate event loop, on real connections.

A `Tab` folds its frames with a `Watcher`, can disconnect and resume at its last position, and keeps the error of a
wrong frame for the test. `Tabs` holds the event loop and the HTTP client that all tabs of one test share.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import anyio
import httpx2
from anyio.abc import TaskStatus
from anyio.from_thread import BlockingPortal, start_blocking_portal

from tests.integration.many import ChatOfMany, ManyWatcher
from tests.support.reader import Watcher
from tests.support.server import DEADLINE_SECONDS
from threadcast_protocol.framing.sse import EventFrame, FrameParser
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["Tab", "TabOfMany", "Tabs", "open_tabs"]

_T = TypeVar("_T")


class Tabs:
    """Opens tabs of the server at `url` in the event loop, and makes requests."""

    def __init__(self, portal: BlockingPortal, client: httpx2.AsyncClient, url: str) -> None:
        self.portal = portal
        self.client = client
        self.url = url

    def request(self, method: str, path: str, body: JsonObject | None = None) -> httpx2.Response:
        async def ask() -> httpx2.Response:
            return await self.client.request(method, self.url + path, json=body)

        return self.call(ask)

    def call(self, work: Callable[[], Awaitable[_T]]) -> _T:
        async def run() -> _T:
            with anyio.fail_after(DEADLINE_SECONDS):
                return await work()

        return self.portal.call(run)


class Tab:
    """One reader of one chat. `watcher` holds the received state."""

    def __init__(self, tabs: Tabs, chat_id: str) -> None:
        self.watcher = Watcher(chat_id)
        self.mistake: AssertionError | None = None
        self._tabs = tabs
        self._scope: anyio.CancelScope | None = None

    @property
    def is_here(self) -> bool:
        return self._scope is not None

    @property
    def last_event_id(self) -> str:
        """Return the id after which to resume."""
        return self.watcher.last_id

    @property
    def chat_ids(self) -> list[str]:
        return [self.watcher.chat_id]

    def come(self) -> None:
        """Open the stream; resume after the last id, if there is one."""
        _, self._scope = self._tabs.portal.start_task(self._read)

    def leave(self) -> None:
        scope, self._scope = self._scope, None
        if scope is not None:
            self._tabs.portal.call(scope.cancel)

    async def until(self, wanted: Callable[[Watcher], object], seconds: float) -> bool:
        """Wait until the watcher satisfies the condition; returns False if the deadline passes first. Raises the error
        of a wrong frame."""
        with anyio.move_on_after(seconds):
            await self.watcher.until(lambda w: self.mistake or wanted(w), 2 * seconds)
        if self.mistake is not None:
            raise self.mistake
        return bool(wanted(self.watcher))

    async def _read(self, *, task_status: TaskStatus[anyio.CancelScope]) -> None:
        parser = FrameParser()
        address = f"{self._tabs.url}/v1/chats/subscribe?" + "&".join(f"chat_id={name}" for name in self.chat_ids)
        headers = {"Last-Event-ID": self.last_event_id} if self.last_event_id else {}
        timeout = httpx2.Timeout(DEADLINE_SECONDS, read=60)
        with anyio.CancelScope() as scope:
            async with self._tabs.client.stream("GET", address, headers=headers, timeout=timeout) as answer:
                assert answer.status_code == 200
                self.watcher.begin()
                task_status.started(scope)
                async for chunk in answer.aiter_raw():
                    for frame in parser.feed(chunk):
                        if isinstance(frame, EventFrame):
                            self._take(frame)
        self.watcher.end()

    def _take(self, frame: EventFrame) -> None:
        try:
            self.watcher.take(frame)
        except AssertionError as mistake:
            self.mistake = self.mistake or mistake
            self.watcher.end()


class TabOfMany(Tab):
    """A reader of one chat on a stream that carries `others` too."""

    def __init__(self, tabs: Tabs, chat_id: str, others: Sequence[str]) -> None:
        super().__init__(tabs, chat_id)
        self.many = ManyWatcher()
        self.watcher: ChatOfMany = ChatOfMany(chat_id)
        self.many.chats[chat_id] = self.watcher
        self._others = others

    @property
    def last_event_id(self) -> str:
        return self.many.last_id

    @property
    def chat_ids(self) -> list[str]:
        return [*self._others, self.watcher.chat_id]

    def _take(self, frame: EventFrame) -> None:
        try:
            self.many.take(frame)
        except AssertionError as mistake:
            self.mistake = self.mistake or mistake
        self.watcher._notify()  # a separate watcher, fed by the stream of many chats


@contextmanager
def open_tabs(url: str) -> Iterator[Tabs]:
    with start_blocking_portal("asyncio") as portal:
        limits = httpx2.Limits(max_connections=None)
        client = httpx2.AsyncClient(timeout=DEADLINE_SECONDS, limits=limits)
        try:
            yield Tabs(portal, client, url)
        finally:
            portal.call(client.aclose)
