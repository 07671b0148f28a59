"""Turns the steps of durable agents into lines for a terminal (`agent_step`, PROTOCOL §8).

A step gets one line when it begins to wait for an answer or for a time, and one line when it has ended. The line of a
step that is running is erased by the next output, like the line of a running tool.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeAlias

from threadcast.console.pen import CYAN, DIM, RED, Pen, short

__all__ = ["StepLines"]

Json: TypeAlias = Mapping[str, Any]  # Any: events as JSON objects

NAME_MAX_CHARACTERS = 100


class StepLines:
    """Writes each step of the present run with `pen`. No line is written twice, even if a snapshot repeats the step."""

    def __init__(self, pen: Pen) -> None:
        self._pen = pen
        self._run_id = ""
        self._written: set[tuple[str, str]] = set()

    def take(self, step: Json, *, is_shown: bool = True) -> None:
        """Write the line of a step. If `is_shown` is False, nothing is written, and the line counts as written."""
        if step["run_id"] != self._run_id:
            self._run_id, self._written = step["run_id"], set()
        status, name = step["status"], _name(step)
        if status == "running":
            if is_shown:
                self._pen.passing(f"* {name}")
            return
        written = (step["step_id"], status)
        if written in self._written:
            return
        self._written.add(written)
        if not is_shown:
            return
        self._pen.end_line()
        if status == "waiting":
            self._pen.line(f"* {name} ({_wait(step)})", DIM)
            return
        is_done = status == "done"
        elapsed = f" ({step['elapsed_ms']} ms)" if step.get("elapsed_ms") is not None else ""
        outcome = step.get("error") or ("outcome unknown" if status == "unknown" else status)
        self._pen.write(f"{'*' if is_done else '!'} {name} ", CYAN if is_done else RED)
        self._pen.line(f"→ {short(step.get('error') or outcome, NAME_MAX_CHARACTERS)}{elapsed}", DIM)


def _name(step: Json) -> str:
    return short(step.get("name") or step["kind"], NAME_MAX_CHARACTERS)


def _wait(step: Json) -> str:
    if step["kind"] == "sleep" and step.get("until") is not None:
        return f"until {_moment(step['until'])}"
    return "waits for an answer" if step["kind"] == "ask" else "waits"


def _moment(ms: int) -> str:
    """Return the local date and time of a moment in Unix milliseconds."""
    try:
        return datetime.fromtimestamp(ms / 1_000).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, OSError, ValueError):  # beyond what the platform's clock can say
        return "a distant day"
