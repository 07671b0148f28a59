"""Records the start and the end of processes that a chat's tools start (PROTOCOL §12).

A worker runs a process (`tools/processes.py`) while the worker owns the chat, and records the end of the process. A
process is recorded before it is started, so that the next owner can report all processes of the former owner as lost.
All functions are pure.
"""

from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.relations import Process, ProcessEnded, ProcessStarted
from threadcast.chat.wakes import tell_model, wake
from threadcast_protocol.wire.errors import Conflict
from threadcast_protocol.wire.events import ProcessCompleted

__all__ = ["CHAT_PROCESSES_MAX", "begin_process", "end_process"]

CHAT_PROCESSES_MAX = 8
"""The maximum number of concurrent processes of one chat, which is enough for a server, a watcher and some builds."""

_MODE = "background"
"""The `mode` in `process_completed`: the tool call did not wait for the process."""


def begin_process(builder: EntryBuilder, worker: str, description: str, *, wakes: bool) -> str:
    """Record that a process is about to start on `worker`, and return the id of the process.

    Raises:
        Conflict: the maximum number of processes is running already, or no run is open. In this case no fact is added.
    """
    private = builder.state.private
    if private.run is None:
        raise Conflict("no run is open, so no process can be started")
    if len(private.relations.processes) >= CHAT_PROCESSES_MAX:
        raise Conflict(f"{CHAT_PROCESSES_MAX} processes of this chat are running already; stop one first")
    process = Process(
        process_id=builder.new_id("proc"),
        worker=worker,
        description=description,
        principal=private.run.principal,
        wakes=wakes,
    )
    builder.note(ProcessStarted(process=process))
    return process.process_id


def end_process(builder: EntryBuilder, process_id: str, status: str, exit_code: int | None, output: str = "") -> None:
    """Record the end of a process. `status` is completed, failed, killed or lost. `output` is the last part of the
    process's output, which the model reads."""
    process = next((each for each in builder.state.private.relations.processes if each.process_id == process_id), None)
    if process is None:
        return
    builder.note(ProcessEnded(process_id=process_id))
    builder.say(
        ProcessCompleted(
            process_id=process_id,
            status=status,
            exit_code=exit_code,
            short_description=process.description,
            mode=_MODE,
        )
    )
    how = status if exit_code is None else f"{status}, exit code {exit_code}"
    tell_model(builder, f"[process {process_id} ({process.description}): {how}]\n{output}".rstrip())
    if process.wakes:
        wake(builder, process.principal, f"process:{process_id}")
