"""Reports the result of a torture run as a table and as JSON, with the evidence of each violation.

It judges nothing. The directory that it names contains everything needed to investigate a violation.
"""

import platform
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tests.torture.evidence import Evidence
from tests.torture.verdict import Verdict

__all__ = ["Report", "keep_evidence"]

SHOWN_MAX = 25
"""Maximum number of violations in the report's text; the JSON has all violations."""


class Report(msgspec.Struct, kw_only=True):
    """`counts` comes from the verdict, `load` counts the work of posters and readers, and `metrics` are the metrics of
    the processes."""

    seed: str
    store: str
    seconds: float
    settled_seconds: float
    processes: dict[str, int]
    is_good: bool
    faults: dict[str, int]
    faults_passed: dict[str, int]
    counts: dict[str, int]
    codes: dict[str, int]
    load: dict[str, int]
    metrics: dict[str, int]
    violations: list[dict[str, str]]
    evidence: str = ""
    python: str = platform.python_version()
    machine: str = platform.platform()

    @property
    def faults_count(self) -> int:
        return sum(self.faults.values())

    def json(self) -> bytes:
        return msgspec.json.format(
            msgspec.json.encode({**msgspec.structs.asdict(self), "faults_count": self.faults_count})
        )

    def text(self) -> str:
        by_kind = Counter(violation["kind"] for violation in self.violations)
        lines = [
            f"torture: {'GOOD' if self.is_good else 'BROKEN'}   seed {self.seed}, {self.store}, Python {self.python}",
            f"  {self.seconds:.0f} s of faults, settled after {self.settled_seconds:.1f} s; "
            + ", ".join(f"{count} {name}" for name, count in self.processes.items()),
            "",
            _table(f"faults: {self.faults_count}", self.faults),
            _table("commands and logs", self.counts),
            _table("reports by code", self.codes),
            _table("posters and readers", self.load),
            _table("metrics", self.metrics),
            f"violations: {len(self.violations)}  " + ", ".join(f"{count} {kind}" for kind, count in by_kind.items()),
        ]
        for violation in self.violations[:SHOWN_MAX]:
            where = " ".join(filter(None, (violation["chat_id"], violation["subject"])))
            lines.append(f"  {violation['kind']:14} {where}: {violation['words']}")
        if len(self.violations) > SHOWN_MAX:
            lines.append(f"  … and {len(self.violations) - SHOWN_MAX} more")
        if self.evidence:
            lines.append(f"evidence: {self.evidence}")
        return "\n".join(lines)


def _table(title: str, counts: Mapping[str, int]) -> str:
    """Return two columns of names and numbers."""
    if not counts:
        return f"{title}\n  none\n"
    width = max(len(name) for name in counts)
    cells = [f"{name:{width}} {count:>9,}" for name, count in sorted(counts.items())]
    half = (len(cells) + 1) // 2
    rows = [f"  {left}    {right}".rstrip() for left, right in zip(cells, [*cells[half:], ""], strict=False)]
    return "\n".join([title, *rows[:half], ""])


def keep_evidence(directory: Path, evidence: Evidence, verdict: Verdict) -> None:
    """Write the logs and commands of each chat with a violation into a file of its own, and all violations into one
    file."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "violations.json").write_bytes(msgspec.json.format(msgspec.json.encode(verdict.violations)))
    broken = {violation.chat_id for violation in verdict.violations}
    for chat in evidence.chats:
        if chat.chat_id not in broken:
            continue
        commands = [msgspec.json.encode(asked) for asked in evidence.commands if asked.chat_id == chat.chat_id]
        entries = [
            b'{"id":"%b","before":"%b","position":%d,"time_ms":%d,"fence":%b,"events":%b,"facts":%b,"acks":%b}'
            % (
                str(entry.entry_id).encode(),
                entry.before.encode(),
                entry.position,
                entry.time_ms,
                msgspec.json.encode(entry.fence),
                entry.events,
                entry.facts or b"[]",
                entry.acks or b"[]",
            )
            for entry in chat.entries
        ]
        (directory / f"{chat.chat_id}.jsonl").write_bytes(b"\n".join([*commands, *entries]) + b"\n")
