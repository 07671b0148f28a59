"""Processes that a chat's tools began: what the log says of one when it starts and when it has ended (PROTOCOL §12).

Pure; the process itself is the worker's (`server/tools/processes.py`). It lives as long as that worker owns the chat,
which is why its end needs no letter: the owner writes it down. The rule: noted before it is started, so that a
successor can say of every process that it is lost.
"""

from protocol.errors import Conflict
from protocol.events import ProcessCompleted
from protocol.ledger import Ledger
from protocol.relations import Process, ProcessEnded, ProcessStarted
from protocol.wakes import tell_model, wake

__all__ = ["PROCESSES_MAX", "begin_process", "end_process"]

PROCESSES_MAX = 8
"""Of one chat at once: a server, a watcher, some builds."""

_MODE = "background"
"""What `process_completed` calls a process that its tool call did not wait for."""


def begin_process(ledger: Ledger, worker: str, description: str, *, wakes: bool) -> str:
    """Note that a process is about to start at `worker`; its id.

    Raises:
        Conflict: as many run as may, or no run is open; nothing was written.
    """
    private = ledger.state.private
    if private.run is None:
        raise Conflict("no run is open, so there is nobody who could start a process")
    if len(private.relations.processes) >= PROCESSES_MAX:
        raise Conflict(f"{PROCESSES_MAX} processes of this chat are running already; stop one first")
    process = Process(
        process_id=ledger.new_id("proc"),
        worker=worker,
        description=description,
        principal=private.run.principal,
        wakes=wakes,
    )
    ledger.note(ProcessStarted(process=process))
    return process.process_id


def end_process(ledger: Ledger, process_id: str, status: str, exit_code: int | None, output: str = "") -> None:
    """A process is over; `status` is completed, failed, killed or lost. `output` is its last words, for the model."""
    known = [each for each in ledger.state.private.relations.processes if each.process_id == process_id]
    if not known:
        return
    process = known[0]
    ledger.note(ProcessEnded(process_id=process_id))
    ledger.say(
        ProcessCompleted(
            process_id=process_id,
            status=status,
            exit_code=exit_code,
            short_description=process.description,
            mode=_MODE,
        )
    )
    how = status if exit_code is None else f"{status}, exit code {exit_code}"
    tell_model(ledger, f"[process {process_id} ({process.description}): {how}]\n{output}".rstrip())
    if process.wakes:
        wake(ledger, process.principal, f"process:{process_id}")
