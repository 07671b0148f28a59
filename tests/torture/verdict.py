"""Judges a torture run's evidence: finds the promises (DESIGN §14) that were not kept. The functions are pure.

Each promise is followed by the kinds of its violations:

- Every accepted command took effect exactly once, or its failure was reported: lost, twice, contradiction.
- A refused command had no effect: refused.
- A command is given up after three takeovers without progress: poison.
- Every reader, the snapshot and the law agree with the owner: diverged, behind, law, hole.
- Answers are the model's words: text.
- A tool that may not be repeated ran at most once in each call: tool.
- Commands are taken up in the order of their acceptance: order.
- Client tools and sub-chats keep the rules of `calls.py`: client tool, child.
- No content of an earlier life of a chat appears in its present life: old life.
- Every attached file is there, byte for byte: blob.
- No data is left over: leftover.

The module uses no processes or faults. `test_verdict.py` and `test_calls.py` show that it can fail: they doctor
evidence of a correct run (`sound.py`).
"""

from collections import Counter, defaultdict

import msgspec

from tests.torture.calls import wrong_children, wrong_client_calls
from tests.torture.evidence import Asked, Evidence
from tests.torture.history import Reading, read_history
from tests.torture.order import out_of_order
from tests.torture.plan import file_of

__all__ = ["Verdict", "Violation", "judge"]


class Violation(msgspec.Struct, frozen=True):
    """`subject` is a request id, a reader's name or a call id, depending on the kind."""

    kind: str
    chat_id: str
    subject: str
    words: str


class Verdict(msgspec.Struct, kw_only=True):
    """`counts` appears in the report, in the order of the report's lines."""

    violations: list[Violation]
    counts: dict[str, int]
    codes: dict[str, int] = {}

    @property
    def is_good(self) -> bool:
        return not self.violations


def judge(evidence: Evidence) -> Verdict:
    """Return every violation in this evidence."""
    readings = {chat.chat_id: read_history(chat) for chat in evidence.chats}
    found = [Violation(mishap.kind, mishap.chat_id, "", mishap.words) for mishap in evidence.mishaps]
    counts: Counter[str] = Counter()
    for chat in evidence.chats:
        reading = readings[chat.chat_id]
        found += [Violation(kind, chat.chat_id, "", words) for kind, words in reading.wrong]
        if chat.inbox_count or reading.queue:
            words = f"{chat.inbox_count} commands in the inbox, {reading.queue} in the queue"
            found.append(Violation("leftover", chat.chat_id, "", words))
        counts["answers"] += reading.answers_count
        counts["events"] += reading.position
        for why, count in reading.fences.items():
            counts[why] += count
    commands: dict[str, list[Asked]] = defaultdict(list)
    for command in evidence.commands:
        commands[command.chat_id].append(command)
    _judge_order(evidence, readings, commands, found, counts)
    _judge_calls(readings, commands, found, counts)
    _judge_blobs(evidence, readings, commands, found, counts)
    for command in evidence.commands:
        _judge_command(command, readings.get(command.chat_id), found, counts)
    _judge_buried(evidence, readings, found, counts)
    _judge_readers(evidence, readings, found, counts)
    _judge_tools(evidence, readings, found, counts)
    codes: Counter[str] = Counter()
    for reading in readings.values():
        codes.update(reading.codes)
    return Verdict(violations=found, counts=dict(counts), codes=dict(codes))


def _judge_command(command: Asked, reading: Reading | None, found: list[Violation], counts: Counter[str]) -> None:
    name = command.request_id
    said = len(reading.said.get(name, ())) if reading else 0
    acks = reading.acks.get(name, []) if reading else []
    yes, no = acks.count(True), acks.count(False)
    runs = reading.runs[name] if reading else 0
    notes = reading.notes[name] if reading else 0

    def wrong(kind: str, words: str) -> None:
        found.append(Violation(kind, command.chat_id, name, f"{command.type}: {words}; it was told {command.answers}"))

    counts["duplicates"] += command.answers.count("duplicate")
    counts["mismatches"] += command.answers.count("idempotency_mismatch")
    if not command.is_accepted:
        counts["refused"] += bool(command.answers)
        if not command.answers:
            wrong("unanswered", f"posted {command.posts} times and never answered")
        if yes or said or runs or notes:
            wrong("refused", "it was never accepted, and yet it took effect")
        return
    counts["accepted"] += 1
    if command.kept_count > 1:
        wrong("twice", f"{command.kept_count} posts were answered as the first")
    if yes > 1 or no > 1 or said > 1 or runs > 1 or notes > 1:
        wrong("twice", f"{yes} acks, {no} refusals, {said} messages, {runs} runs, {notes} changes of parameters")
    took_effect = {"user_message": said, "set_params": notes}.get(command.type, yes) > 0
    if no and took_effect and command.type in ("user_message", "set_params"):
        wrong("contradiction", "it took effect and was reported as failed")
    elif no:
        counts["reported"] += 1
    elif took_effect:
        counts["applied"] += 1
        if not yes:
            wrong("lost", "it took effect without an ack")
    else:
        wrong("lost", "no effect and no report")
    if command.was_cancelled and (said or runs):
        wrong("contradiction", "it was cancelled, and yet it took effect")
    if not command.is_seen:
        wrong("unseen", "its id never came by in its poster's stream")


def _judge_order(
    evidence: Evidence,
    readings: dict[str, Reading],
    commands: dict[str, list[Asked]],
    found: list[Violation],
    counts: Counter[str],
) -> None:
    for chat in evidence.chats:
        reading = readings[chat.chat_id]
        counts["taken up in order"] += sum(name in reading.accepted for name in reading.taken_up)
        late = out_of_order(reading.accepted, reading.taken_up, reading.spoken, commands[chat.chat_id])
        found += [Violation("order", chat.chat_id, name, words) for name, words in late]


def _judge_buried(
    evidence: Evidence, readings: dict[str, Reading], found: list[Violation], counts: Counter[str]
) -> None:
    for command in evidence.buried:
        counts["commands of earlier lives"] += 1
        reading, name = readings.get(command.chat_id), command.request_id
        if reading is None:
            continue
        was_brought = name in evidence.brought.get(command.chat_id, ())
        traces = [reading.acks.get(name), reading.runs[name]]
        if any(traces) or (not was_brought and (name in reading.said or reading.notes[name])):
            words = f"{command.type} of an earlier life: {traces} in this one"
            found.append(Violation("old life", command.chat_id, name, words))


def _judge_calls(
    readings: dict[str, Reading], commands: dict[str, list[Asked]], found: list[Violation], counts: Counter[str]
) -> None:
    for chat_id, reading in readings.items():
        counts["client calls"] += reading.required.total()
        counts["sub-chats"] += len(reading.children)
        wrongs = [*wrong_client_calls(reading, commands[chat_id]), *wrong_children(reading, readings)]
        found += [Violation(wrong.kind, chat_id, wrong.subject, wrong.words) for wrong in wrongs]


def _judge_blobs(
    evidence: Evidence,
    readings: dict[str, Reading],
    commands: dict[str, list[Asked]],
    found: list[Violation],
    counts: Counter[str],
) -> None:
    """Check that a message has its command's file, and that an edit without a file has the file of the edited
    message."""
    for chat_id, reading in readings.items():
        edits = {asked.request_id for asked in commands[chat_id] if asked.type == "update_message"}
        for request_id, name in reading.files.items():
            counts["files"] += 1
            data = evidence.blobs.get(f"{chat_id}/{name}")
            brought_by = reading.said.keys() - edits if request_id in edits else {request_id}
            if data is None or data not in map(file_of, brought_by):
                words = f"the blob {name[:12]} is {'not there' if data is None else 'other bytes'}"
                found.append(Violation("blob", chat_id, request_id, words))


def _judge_readers(
    evidence: Evidence, readings: dict[str, Reading], found: list[Violation], counts: Counter[str]
) -> None:
    counts["readers"] = len(evidence.readers)
    for reader in evidence.readers:
        reading = readings.get(reader.chat_id)
        if reading is None or reading.snapshot == reader.snapshot:
            continue
        if reader.position != reading.position:
            words = f"it stands at {reader.position}, the chat at {reading.position}"
            found.append(Violation("behind", reader.chat_id, reader.name, words))
        else:
            words = f"its state at {reader.position} is not the owner's"
            found.append(Violation("diverged", reader.chat_id, reader.name, words))


def _judge_tools(
    evidence: Evidence, readings: dict[str, Reading], found: list[Violation], counts: Counter[str]
) -> None:
    runs = Counter((run.chat_id, run.run_id, run.call_id) for run in evidence.tool_runs)
    counts["tool runs"] = len(evidence.tool_runs)
    once = {(run.chat_id, run.run_id, run.call_id) for run in evidence.tool_runs if run.kind != "safe"}
    for chat_id, run_id, call_id in sorted(once):
        if (times := runs[chat_id, run_id, call_id]) > 1:
            words = f"a tool that may not be repeated ran {times} times in {run_id}"
            found.append(Violation("tool", chat_id, call_id, words))
    ran = {(run.chat_id, run.call_id) for run in evidence.tool_runs}
    for chat_id, reading in readings.items():
        for call_id in sorted(reading.done_calls):
            if (chat_id, call_id) not in ran:
                found.append(Violation("tool", chat_id, call_id, "it has a result and never ran"))
