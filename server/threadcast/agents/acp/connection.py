"""Speaks JSON-RPC 2.0 with a coding agent: sends our requests with deadlines, passes on the agent's notifications in
order, and answers the agent's requests.

The package `acp` has such a connection, but does not bound lines, and starts a task for each notification, so a hostile
agent could fill the memory and chunks could be reordered. Only the types of the messages come from the package.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from typing import Any, TypeVar

import msgspec
from pydantic import BaseModel, ValidationError

from threadcast.agents.acp.child import Child, ChildBroke
from threadcast.base.boundary import name_of
from threadcast_protocol.wire.decoders import decode_any
from threadcast_protocol.wire.errors import ModelFailed
from threadcast_protocol.wire.messages import JsonObject

__all__ = [
    "INVALID_PARAMS",
    "NOT_FOUND",
    "REQUESTS_MAX",
    "RESOURCE_NOT_FOUND",
    "Connection",
    "RequestFailed",
    "checked",
]

REQUESTS_MAX = 64
"""The maximum requests of the agent that are handled at once; each request takes a task. Further requests are
refused."""

REQUESTS_MAX_BYTES = 67_108_864
"""The maximum bytes of the requests that are handled at once: four of the longest lines. Further requests are
refused."""

_READ_FILE = "fs/read_text_file"

REASON_MAX_CHARACTERS = 500

INVALID_PARAMS, NOT_FOUND, INTERNAL, BUSY = -32602, -32601, -32603, -32000
"""Codes of JSON-RPC 2.0, section 5.1; the last code is from the range for implementations."""

RESOURCE_NOT_FOUND = -32002
"""ACP's code for a file that does not exist ("Error handling"). Agents ask for a file before they write it."""

_Model = TypeVar("_Model", bound=BaseModel)


class RequestFailed(Exception):
    """A request cannot be answered. `code` is the error code of JSON-RPC, and the message is for the other side."""

    def __init__(self, message: str, code: int = INTERNAL) -> None:
        super().__init__(message)
        self.code = code


class Connection:
    """One connection. `on_request` answers the agent's requests. `on_update` takes the notification `session/update`
    and the bytes of its line; the next line is read only when `on_update` returns. Both receive the method's params,
    unchecked."""

    def __init__(
        self,
        child: Child,
        on_request: Callable[[str, Any], Awaitable[JsonObject]],
        on_update: Callable[[Any, int], Awaitable[None]],
    ) -> None:
        self._child = child
        self._on_request = on_request
        self._on_update = on_update
        self._open: dict[int, asyncio.Future[Any]] = {}
        self._count = 0
        self._answers: set[asyncio.Task[None]] = set()
        self._requests_bytes = 0
        self._reading_file = asyncio.Lock()
        self.broken = ""
        """The reason for which the connection has ended; '' while it is open."""
        self._reader = asyncio.create_task(self._read(), name="acp reader")  # ended by `close`

    def send(self, method: str, params: BaseModel) -> "asyncio.Future[Any]":
        """Begin a request, and return a future for its result. If the request fails, the future raises ModelFailed."""
        self._count += 1
        number = self._count
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(lambda _: self._open.pop(number, None))
        if self.broken:
            answer.set_exception(ModelFailed("connection", self.broken))
            return answer
        self._open[number] = answer
        self._own(self._write({"jsonrpc": "2.0", "id": number, "method": method, "params": _json(params)}))
        return answer

    async def request(self, method: str, params: BaseModel, result: type[_Model], seconds: float) -> _Model:
        """Send a request and return its checked result.

        Raises:
            ModelFailed: the agent refused the request, did not answer in time, has ended, or sent an answer that does
                not fit ACP.
        """
        try:
            async with asyncio.timeout(seconds):
                found = await self.send(method, params)
        except TimeoutError:
            raise ModelFailed("timeout", f"The agent did not answer {method} in {seconds:g} seconds.") from None
        return checked(result, found if found is not None else {}, method)

    async def notify(self, method: str, params: BaseModel) -> None:
        """Send a notification. Raises ChildBroke."""
        await self._write({"jsonrpc": "2.0", "method": method, "params": _json(params)})

    async def close(self) -> None:
        """Stop reading and answering, and end the child."""
        tasks = [self._reader, *self._answers]
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            await self._child.stop()
            self._end("The agent was stopped.")

    async def _read(self) -> None:
        try:
            async for line in self._child.read():
                await self._take(line)
        except ChildBroke as wrong:
            self._end(str(wrong))
        except Exception as wrong:  # boundary: a message of the agent
            self._end(f"The agent sent what cannot be read ({name_of(wrong)}).")

    async def _take(self, line: bytes) -> None:
        try:
            message = decode_any(line)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return  # programs also print lines that are not JSON
        if not isinstance(message, dict):
            return
        method, number = message.get("method"), message.get("id")
        if isinstance(method, str):
            if number is None:
                if method == "session/update":
                    await self._on_update(message.get("params"), len(line))
            elif isinstance(number, int | str):
                await self._answer(number, method, message.get("params"), len(line))
            return
        answer = self._open.get(number) if isinstance(number, int) else None
        if answer is None or answer.done():
            return
        if "error" in message:
            wrong = message["error"]
            said = str(wrong.get("message", "")) if isinstance(wrong, dict) else ""
            answer.set_exception(
                ModelFailed("llm_error", f"The agent failed: {said.strip()[:REASON_MAX_CHARACTERS] or 'no reason'}")
            )
        else:
            answer.set_result(message.get("result"))

    async def _answer(self, number: int | str, method: str, params: Any, size: int) -> None:  # Any: JSON of the agent
        if len(self._answers) >= REQUESTS_MAX or self._requests_bytes + size > REQUESTS_MAX_BYTES:
            limit = f"at most {REQUESTS_MAX} requests of {REQUESTS_MAX_BYTES:,} bytes together at once"
            # The reading task writes this answer itself, so an agent that does not take its answers is not read either.
            await self._write({"jsonrpc": "2.0", "id": number, "error": {"code": BUSY, "message": limit}})
            return
        self._requests_bytes += size
        self._own(self._answered(number, method, params)).add_done_callback(lambda _: self._release(size))

    def _release(self, size: int) -> None:
        self._requests_bytes -= size

    async def _answered(self, number: int | str, method: str, params: Any) -> None:  # Any: JSON of the agent
        message: JsonObject = {"jsonrpc": "2.0", "id": number}
        # The next file is read when the agent has taken the file before; otherwise 64 files would wait in memory.
        async with self._reading_file if method == _READ_FILE else nullcontext():
            try:
                message["result"] = await self._on_request(method, params)
            except RequestFailed as wrong:
                message["error"] = {"code": wrong.code, "message": str(wrong)}
            except Exception as wrong:  # boundary: one request of the agent
                message["error"] = {"code": INTERNAL, "message": f"the request failed: {name_of(wrong)}"}
            await self._write(message)

    async def _write(self, message: JsonObject) -> None:
        await self._child.write(msgspec.json.encode(message))

    def _own(self, work: Any) -> "asyncio.Task[None]":  # Any: a coroutine without a result
        """Run `work` in a task of this connection. A task fails only because the child has ended, which `_read`
        reports."""
        task = asyncio.create_task(_quiet(work))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)
        return task

    def _end(self, why: str) -> None:
        self.broken = self.broken or why
        for answer in list(self._open.values()):
            if not answer.done():
                answer.set_exception(ModelFailed("connection", self.broken))


def checked(model: type[_Model], value: Any, what: str) -> _Model:  # Any: JSON of the agent
    """Return a checked value of the agent. Raises ModelFailed: the value does not fit `model`."""
    try:
        return model.model_validate(value)
    except (ValidationError, RecursionError):
        raise ModelFailed("llm_error", f"The agent's answer to {what} does not fit ACP.") from None


async def _quiet(work: Any) -> None:  # Any: a coroutine without a result
    with suppress(ChildBroke):
        await work


def _json(model: BaseModel) -> JsonObject:
    found: JsonObject = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return found
