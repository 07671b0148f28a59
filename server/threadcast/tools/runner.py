"""Runs one tool call and always returns a result, with limits of time and size (LOOP-5..7, LOOP-15).

Each call runs in a task that the runner owns, because a tool is foreign code: it may hang, swallow its cancellation or
report long after it was abandoned. The agent loop checks policies and then calls the runner; the worker closes the
runner. However a tool behaves, the caller gets a result within the tool's timeout, or `CANCEL_GRACE_SECONDS` after
cancelling, and receives nothing from that call afterwards.
"""

import asyncio
import math
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import anyio
import msgspec
import structlog
from structlog.typing import FilteringBoundLogger

from threadcast.base.boundary import name_of, pass_on
from threadcast.base.deadlines import LOOK_SECONDS
from threadcast.tools.base import (
    MEMORY_MAX_BYTES,
    Payload,
    Tool,
    ToolResult,
    read_arguments,
)
from threadcast.tools.context import Progress, Report, ToolContext
from threadcast.tools.preview import Preview
from threadcast.tools.questions import NotAnswered
from threadcast_protocol.wire.decoders import decode_any
from threadcast_protocol.wire.errors import ToolFailed
from threadcast_protocol.wire.mending import mend, mend_text, mended_json
from threadcast_protocol.wire.messages import JsonObject
from threadcast_protocol.wire.thread import OBJECT_MAX_BYTES

__all__ = ["CANCEL_GRACE_SECONDS", "TOOL_RESULT_MAX_BYTES", "ToolRun", "ToolRunner"]

CANCEL_GRACE_SECONDS = 0.5
"""Seconds for a cancelled tool to clean up: half of the second within which an abort must end."""

TOOL_RESULT_MAX_BYTES = 16 * 1024 * 1024
"""Maximum bytes of a result, which is the size of one blob. A longer text is cut, with a note. `chat/tool_results.py`
cuts the message's text further and keeps the whole result."""

SENTENCE_MAX_CHARS = 2_000
"""Maximum characters of an error text or a progress message."""

PAYLOADS_MAX_BYTES = 256_000
"""Maximum bytes of a result's payloads, which are part of every snapshot of their chat."""

PROGRESS_DATA_MAX_BYTES = 16_000
"""Maximum bytes of a progress report's `data`, which every watcher receives: larger data is left out of the report."""

ASKED_LOOK_SECONDS = 0.2
"""Minimum seconds between two checks of a call that asks a person and has almost no time left."""

_log: FilteringBoundLogger = structlog.get_logger()


class ToolRun(msgspec.Struct, frozen=True):
    """The result of a call. `is_abandoned`: the tool did not end when it was cancelled, and may still be running."""

    result: ToolResult
    elapsed_ms: int
    is_abandoned: bool = False


class ToolRunner:
    """Runs any number of calls concurrently and remembers abandoned calls. Call `aclose` when no call is running."""

    def __init__(self, cancel_grace_seconds: float = CANCEL_GRACE_SECONDS) -> None:
        self._cancel_grace_seconds = cancel_grace_seconds
        self._abandoned: set[asyncio.Task[ToolResult]] = set()

    async def run(
        self, tool: Tool | None, name: str, arguments: str, context: ToolContext, available: Sequence[str] = ()
    ) -> ToolRun:
        """Run the call `name(arguments)`; `arguments` is JSON text as the model wrote it, or empty if there are no
        arguments.

        `tool` None means that there is no such tool; the result then names the `available` tools. Progress is passed to
        `context.report`, always in the loop's thread. A cancellation is passed to the tool once, and the tool then has
        the grace period to end.
        """
        if tool is None:
            offered = ", ".join(available) or "none"
            return ToolRun(failed_result(f"There is no tool {name!r}. Available tools: {offered}."), 0)
        values = read_arguments(arguments)
        if values is None:
            return ToolRun(failed_result("The arguments are not a JSON object; the tool was not run."), 0)
        clock = asyncio.get_running_loop().time
        begun_at = clock()
        call = _Call(context)
        task = asyncio.create_task(_drive(tool, values, call), name=_task_name(name, context.tool_call_id))
        is_late = False
        try:
            done, _ = await asyncio.wait({task}, timeout=tool.timeout_seconds)
            while not done and (left := tool.timeout_seconds + call.asked_seconds - (clock() - begun_at)) > 0:
                done, _ = await asyncio.wait({task}, timeout=max(left, ASKED_LOOK_SECONDS))
            if not done:  # the tool's answer may still be unread in a socket
                done, _ = await asyncio.wait({task}, timeout=LOOK_SECONDS)
            is_late = not done
        finally:
            # The call is closed before the tool is stopped, so that later reports of the tool are dropped.
            call.close()
            is_abandoned = await self._stop(task, context)
        elapsed_ms = round((clock() - begun_at) * 1000)
        if is_late:
            text = f"The tool did not finish within {tool.timeout_seconds:g} s."
            return ToolRun(failed_result(text), elapsed_ms, is_abandoned)
        # If the runner did not request the cancellation, it came from inside the tool.
        result = failed_result("The tool failed: CancelledError.") if task.cancelled() else task.result()
        return ToolRun(result, elapsed_ms)

    def has_abandoned(self, name: str, tool_call_id: str) -> bool:
        """Return whether this abandoned call is still running."""
        return any(task.get_name() == _task_name(name, tool_call_id) for task in self._abandoned)

    async def aclose(self) -> None:
        """Cancel abandoned calls again, wait for at most the grace period, and log the calls that still run."""
        if not self._abandoned:
            return
        for task in self._abandoned:
            task.cancel()
        await asyncio.wait(self._abandoned, timeout=self._cancel_grace_seconds)
        if self._abandoned:
            _log.warning("tool.left_behind", tools=sorted(task.get_name() for task in self._abandoned))

    async def _stop(self, task: asyncio.Task[ToolResult], context: ToolContext) -> bool:
        """End `task` if it has not ended. Returns True if the task did not end in time and was abandoned."""
        if task.done():
            return False
        task.cancel()
        try:
            # Shielded, because a caller in a cancelled scope would be cancelled again at this wait.
            with anyio.CancelScope(shield=True):
                await asyncio.wait({task}, timeout=self._cancel_grace_seconds)
        finally:
            if not task.done():
                self._abandoned.add(task)
                task.add_done_callback(self._abandoned.discard)
                _log.warning("tool.abandoned", task=task.get_name(), chat_id=context.chat_id)
        return not task.done()


def _task_name(name: str, tool_call_id: str) -> str:
    return f"tool {name} {tool_call_id}"


class _Call:
    """Wraps the context of one call for the tool. `report` works from any thread and drops reports after the call is
    closed. `ask` measures the time in which at least one question is open."""

    def __init__(self, context: ToolContext) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._publish: Callable[[Report], None] = context.report
        self._is_closed = False
        self._asks = context.ask
        self._asking_count = 0
        self._asking_since = -math.inf
        self._asked_seconds = 0.0
        self.context: ToolContext = msgspec.structs.replace(
            context,
            report=self.report,
            ask=self.ask,
            is_cancelled=lambda: self._is_closed or context.is_cancelled(),
        )

    def close(self) -> None:
        self._is_closed = True

    @property
    def asked_seconds(self) -> float:
        """The seconds in which the call waited for a person's answer, which do not count towards its timeout."""
        return self._asked_seconds + (self._loop.time() - self._asking_since if self._asking_count else 0.0)

    async def ask(
        self, text: str, options: Sequence[str] = (), *, schema: JsonObject | None = None
    ) -> Any:  # Any: see `AskPort`
        if self._is_closed:
            raise NotAnswered("The call has ended, so it cannot ask a person.", "refused")
        if self._asking_count == 0:
            self._asking_since = self._loop.time()
        self._asking_count += 1
        try:
            return await self._asks(text, options, schema=schema)
        finally:
            self._asking_count -= 1
            if self._asking_count == 0:
                self._asked_seconds += self._loop.time() - self._asking_since

    def report(self, report: Report) -> None:
        if self._is_closed:
            return
        fitting = _fit(report) if isinstance(report, Progress) else report
        if threading.get_ident() == self._loop_thread:
            self._publish(fitting)
        else:
            # The order is kept: reports that a thread makes before it returns are delivered before its result.
            self._loop.call_soon_threadsafe(self._deliver, fitting)

    def _deliver(self, report: Report) -> None:
        if not self._is_closed:
            self._publish(report)


async def _drive(tool: Tool, arguments: JsonObject, call: _Call) -> ToolResult:
    """Run the tool in its task. Every exception becomes a result, except the task's own cancellation."""
    try:
        async with AsyncExitStack() as stack:
            outputs = tool.run(arguments, call.context)
            if isinstance(outputs, AsyncGenerator):
                stack.push_async_callback(outputs.aclose)
            async for output in outputs:
                if isinstance(output, ToolResult):
                    return _checked(output)
                call.report(output)
                await asyncio.sleep(0)  # without this wait, a tool that only reports could never be cancelled
            return failed_result("The tool ended without a result.")
    except ToolFailed as failure:
        return failed_result(failure.message)
    except BaseException as wrong:  # boundary: a tool call
        pass_on(wrong)
        _log.warning("tool.failed", tool=tool.name, chat_id=call.context.chat_id, exc_info=True)
        return failed_result(f"The tool failed: {name_of(wrong)}.")


def failed_result(text: str) -> ToolResult:
    """Return the result of a failed call for the model."""
    return ToolResult(content=mend_text(text[:SENTENCE_MAX_CHARS]), failed=True)


def _checked(result: ToolResult) -> ToolResult:
    """Return `result` in a form for the log, with a bounded size and without values that JSON cannot represent. Texts
    are repaired."""
    try:
        result = _mended(result)
        patch_bytes = len(msgspec.json.encode(result.metadata_patch))
        payloads_bytes = len(msgspec.json.encode((result.payloads, result.preview)))
        memory_bytes = len(msgspec.json.encode(result.memory_patch))
    except (TypeError, ValueError):
        return failed_result(
            "The tool returned a metadata_patch, memory_patch, payload or preview that JSON cannot represent."
        )
    if memory_bytes > MEMORY_MAX_BYTES:
        return failed_result(f"The tool returned a memory_patch of more than {MEMORY_MAX_BYTES} bytes.")
    if payloads_bytes > PAYLOADS_MAX_BYTES:
        return failed_result(f"The tool returned payloads of more than {PAYLOADS_MAX_BYTES} bytes.")
    if patch_bytes > OBJECT_MAX_BYTES:
        return failed_result(f"The tool returned a metadata_patch of more than {OBJECT_MAX_BYTES} bytes.")
    return msgspec.structs.replace(result, content=_cut(result.content))


def _mended(result: ToolResult) -> ToolResult:
    """Repair texts. Raises TypeError for a value that JSON cannot represent."""
    beside = {name: getattr(result, name) for name in ("metadata_patch", "payloads", "preview", "memory_patch")}
    try:
        msgspec.json.encode(beside)
    except UnicodeEncodeError:
        mended = msgspec.convert(mend(msgspec.to_builtins(beside)), _Beside)
        return msgspec.structs.replace(result, **msgspec.structs.asdict(mended))
    return result


class _Beside(msgspec.Struct):
    """The parts of a result other than its text."""

    metadata_patch: JsonObject
    payloads: list[Payload]
    preview: Preview | None
    memory_patch: JsonObject


def _cut(text: str) -> str:
    """Return at most `TOOL_RESULT_MAX_BYTES` of `text`, without characters that JSON cannot represent. A long text is
    cut before it is encoded, because a copy of a hundred megabytes would take that much memory again and block the
    process for a moment."""
    encoded = mend_text(text[:TOOL_RESULT_MAX_BYTES]).encode()
    if len(text) <= TOOL_RESULT_MAX_BYTES and len(encoded) <= TOOL_RESULT_MAX_BYTES:
        return encoded.decode()
    note = f"\n[cut: {len(text)} characters in all]"
    return encoded[: TOOL_RESULT_MAX_BYTES - len(note)].decode(errors="ignore") + note


def _fit(progress: Progress) -> Progress:
    """Return the report with `fraction` clamped to 0..1 (EVT-9), bounded texts, and without values that JSON cannot
    hold."""
    fraction, data = progress.fraction, progress.data
    if fraction is not None:
        fraction = min(1.0, max(0.0, fraction)) if math.isfinite(fraction) else None
    if data is not None:
        try:
            encoded = mended_json(data)
            data = decode_any(encoded) if len(encoded) <= PROGRESS_DATA_MAX_BYTES else None
        except (TypeError, ValueError):
            data = None
    return Progress(_short(progress.stage), _short(progress.message), fraction, data)


def _short(text: str | None) -> str | None:
    return None if text is None else mend_text(text[:SENTENCE_MAX_CHARS])
