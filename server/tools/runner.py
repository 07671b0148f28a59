"""Runs one tool call and always comes back with a result: deadline, cancellation, failure, size (LOOP-5..7, LOOP-15).

Each call runs in a task of its own that the runner owns, because a tool is foreign code: it may hang, swallow its
cancellation or report long after it was given up. Called by the agent loop, closed with the worker. It knows no chat
and no policy, and runs whatever it is told to. The one rule: whatever a tool does, the caller has its answer within the
tool's timeout, or `CANCEL_GRACE_SECONDS` after cancelling, and hears nothing from that call afterwards.
"""

import asyncio
import math
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack

import anyio
import msgspec
import structlog
from structlog.typing import FilteringBoundLogger

from protocol.errors import ToolFailed
from protocol.mending import mend, mend_text, mended_json
from protocol.messages import JsonObject
from protocol.thread import OBJECT_MAX_BYTES
from server.deadlines import LOOK_SECONDS
from server.foreign import name_of, pass_on
from server.tools.base import (
    MEMORY_MAX_BYTES,
    Payload,
    Progress,
    Report,
    Tool,
    ToolContext,
    ToolResult,
    read_arguments,
)
from server.tools.preview import Preview

__all__ = ["CANCEL_GRACE_SECONDS", "RESULT_MAX_BYTES", "ToolRun", "ToolRunner"]

CANCEL_GRACE_SECONDS = 0.5
"""For a cancelled tool to clean up. Half of the second in which an abort must have ended."""

RESULT_MAX_BYTES = 16 * 1024 * 1024
"""As large as one blob; what is beyond is lost, and a note says so. The message's own text is cut shorter by
`agent/calls/results.py`, which keeps the whole."""

SENTENCE_MAX_CHARS = 2_000
"""Of an error text or a progress message: a sentence, not a dump."""

PAYLOADS_MAX_BYTES = 256_000
"""All payloads of one result; they stand in every snapshot of their chat."""

PROGRESS_DATA_MAX_BYTES = 16_000
"""Of a progress report's `data`, which goes to every watcher: larger is dropped, the report goes on without it."""

_log: FilteringBoundLogger = structlog.get_logger()


class ToolRun(msgspec.Struct, frozen=True):
    """`is_abandoned`: the tool did not end when it was told to, and may still be running."""

    result: ToolResult
    elapsed_ms: int
    is_abandoned: bool = False


class ToolRunner:
    """Runs calls, any number at once; remembers the ones it had to give up. `aclose` when no call is running."""

    def __init__(self, cancel_grace_seconds: float = CANCEL_GRACE_SECONDS) -> None:
        self._cancel_grace_seconds = cancel_grace_seconds
        self._abandoned: set[asyncio.Task[ToolResult]] = set()

    async def run(
        self, tool: Tool | None, name: str, arguments: str, context: ToolContext, available: Sequence[str] = ()
    ) -> ToolRun:
        """Run the call `name(arguments)`; `arguments` is JSON text as the model wrote it, empty for none.

        `tool` None means that there is no such tool: the model is told the `available` ones. Progress goes to
        `context.report`, always in the loop's thread. Cancelling is passed to the tool once, then awaited for at most
        the grace.
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
            if not done:  # its answer may still lie unread in a socket
                done, _ = await asyncio.wait({task}, timeout=LOOK_SECONDS)
            is_late = not done
        finally:
            # Before the tool is stopped: it must learn that it is over, and nothing more may be heard of it.
            call.close()
            is_abandoned = await self._stop(task, context)
        elapsed_ms = round((clock() - begun_at) * 1000)
        if is_late:
            text = f"The tool did not finish within {tool.timeout_seconds:g} s."
            return ToolRun(failed_result(text), elapsed_ms, is_abandoned)
        # Cancelled though nobody here cancelled it: something inside the tool did.
        result = failed_result("The tool failed: CancelledError.") if task.cancelled() else task.result()
        return ToolRun(result, elapsed_ms)

    def has_abandoned(self, name: str, tool_call_id: str) -> bool:
        """Is this call, which was given up, still running all the same?"""
        return any(task.get_name() == _task_name(name, tool_call_id) for task in self._abandoned)

    async def aclose(self) -> None:
        """Cancel what was abandoned once more, wait for at most the grace, and say what is left behind."""
        if not self._abandoned:
            return
        for task in self._abandoned:
            task.cancel()
        await asyncio.wait(self._abandoned, timeout=self._cancel_grace_seconds)
        if self._abandoned:
            _log.warning("tool.left_behind", tools=sorted(task.get_name() for task in self._abandoned))

    async def _stop(self, task: asyncio.Task[ToolResult], context: ToolContext) -> bool:
        """End `task` if it has not ended; True: it had to be abandoned."""
        if task.done():
            return False
        task.cancel()
        try:
            # Shielded: a caller in a cancelled scope would be cancelled again at this very wait.
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
    """The tool's end of one call: its context, whose `report` may be used from any thread and is deaf once closed."""

    def __init__(self, context: ToolContext) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._publish: Callable[[Report], None] = context.report
        self._is_closed = False
        self.context: ToolContext = msgspec.structs.replace(
            context, report=self.report, is_cancelled=lambda: self._is_closed or context.is_cancelled()
        )

    def close(self) -> None:
        self._is_closed = True

    def report(self, report: Report) -> None:
        if self._is_closed:
            return
        fitting = _fit(report) if isinstance(report, Progress) else report
        if threading.get_ident() == self._loop_thread:
            self._publish(fitting)
        else:
            # In order: what a thread reports before it returns is delivered before its result.
            self._loop.call_soon_threadsafe(self._deliver, fitting)

    def _deliver(self, report: Report) -> None:
        if not self._is_closed:
            self._publish(report)


async def _drive(tool: Tool, arguments: JsonObject, call: _Call) -> ToolResult:
    """The tool's task. Everything it can raise becomes a result, except its own cancellation."""
    try:
        async with AsyncExitStack() as stack:
            outputs = tool.run(arguments, call.context)
            if isinstance(outputs, AsyncGenerator):
                stack.push_async_callback(outputs.aclose)
            async for output in outputs:
                if isinstance(output, ToolResult):
                    return _checked(output)
                call.report(output)
                await asyncio.sleep(0)  # a tool that only reports would never let a cancellation in
            return failed_result("The tool ended without a result.")
    except ToolFailed as failure:
        return failed_result(failure.message)
    except BaseException as wrong:  # boundary: a tool call
        pass_on(wrong)
        _log.warning("tool.failed", tool=tool.name, chat_id=call.context.chat_id, exc_info=True)
        return failed_result(f"The tool failed: {name_of(wrong)}.")


def failed_result(text: str) -> ToolResult:
    """A failure as the model sees it."""
    return ToolResult(content=_clean(text[:SENTENCE_MAX_CHARS]), failed=True)


def _checked(result: ToolResult) -> ToolResult:
    """Return `result` in a form that the log can hold: of bounded size, and without values that JSON cannot represent.
    Texts are repaired."""
    try:
        result = _mended(result)
        patch_bytes = len(msgspec.json.encode(result.metadata_patch))
        payloads_bytes = len(msgspec.json.encode((result.payloads, result.preview)))
        memory_bytes = len(msgspec.json.encode(result.memory_patch))
    except (TypeError, ValueError):
        return failed_result(
            "The tool returned a metadata_patch, memory_patch, payload or preview that cannot be JSON."
        )
    if memory_bytes > MEMORY_MAX_BYTES:
        return failed_result(f"The tool returned a memory_patch of more than {MEMORY_MAX_BYTES} bytes.")
    if payloads_bytes > PAYLOADS_MAX_BYTES:
        return failed_result(f"The tool returned payloads of more than {PAYLOADS_MAX_BYTES} bytes.")
    if patch_bytes > OBJECT_MAX_BYTES:
        return failed_result(f"The tool returned a metadata_patch of more than {OBJECT_MAX_BYTES} bytes.")
    return msgspec.structs.replace(result, content=_cut(result.content))


def _mended(result: ToolResult) -> ToolResult:
    """Repair texts. Raises TypeError: JSON cannot represent a value in it."""
    beside = {name: getattr(result, name) for name in ("metadata_patch", "payloads", "preview", "memory_patch")}
    try:
        msgspec.json.encode(beside)
    except UnicodeEncodeError:
        mended = msgspec.convert(mend(msgspec.to_builtins(beside)), _Beside)
        return msgspec.structs.replace(result, **msgspec.structs.asdict(mended))
    return result


class _Beside(msgspec.Struct):
    """The parts of a result beside its text."""

    metadata_patch: JsonObject
    payloads: list[Payload]
    preview: Preview | None
    memory_patch: JsonObject


def _cut(text: str) -> str:
    """`text` as JSON can say it, at most `RESULT_MAX_BYTES` of it. A giant is cut before it is encoded: each copy of a
    hundred megabytes would cost as much again, and a blink of everybody's time."""
    encoded = mend_text(text[:RESULT_MAX_BYTES]).encode()
    if len(text) <= RESULT_MAX_BYTES and len(encoded) <= RESULT_MAX_BYTES:
        return encoded.decode()
    note = f"\n[cut: {len(text)} characters in all]"
    return encoded[: RESULT_MAX_BYTES - len(note)].decode(errors="ignore") + note


def _fit(progress: Progress) -> Progress:
    """Clamped to 0..1 (EVT-9), bounded, and without what JSON cannot say."""
    fraction, data = progress.fraction, progress.data
    if fraction is not None:
        fraction = min(1.0, max(0.0, fraction)) if math.isfinite(fraction) else None
    if data is not None:
        try:
            encoded = mended_json(data)
            data = msgspec.json.decode(encoded) if len(encoded) <= PROGRESS_DATA_MAX_BYTES else None
        except (TypeError, ValueError):
            data = None
    return Progress(_short(progress.stage), _short(progress.message), fraction, data)


def _short(text: str | None) -> str | None:
    return None if text is None else _clean(text[:SENTENCE_MAX_CHARS])


def _clean(text: str) -> str:
    """Return the text without halves of characters, which Python can hold and UTF-8 cannot."""
    return mend_text(text)
