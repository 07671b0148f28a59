"""One run of the durable agent, with two clients and a person, whose owner is killed at a random moment."""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import httpx2

from tests.bars import bar_seconds
from tests.faults.durable.app import LARGE_CHARACTERS, ONCE, UNKNOWN, WORDS
from tests.support.fleet import Fleet
from tests.support.reader import TimedWatcher, Watcher, watching
from tests.support.server import user_message
from threadcast_protocol.fold.snapshot import snapshot_of
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.events import ErrorHappened
from threadcast_protocol.wire.messages import JsonObject

__all__ = [
    "PHASES",
    "Phase",
    "Story",
    "bound_seconds",
    "effects_of",
    "has_answers",
    "is_step",
    "play",
    "shown_characters",
]

Phase = Callable[[Watcher], object]

RUN_SECONDS = 120.0
TAKEOVER_SECONDS = 5.0
"""Maximum seconds until work resumes after an owner dies (DESIGN §14)."""

SLACK_SECONDS = 1.5
"""A record of the start or the end of an effect is durable at most this long before or after its line in the file."""


def is_step(watcher: Watcher, name: str, status: str = "running") -> bool:
    """Return whether a step of the agent has this status."""
    state = watcher.state
    return state is not None and any(s.name == name and s.status == status for s in state.runtime.agent_steps)


def shown_characters(watcher: Watcher) -> int:
    """Return the characters of the open answer."""
    state = watcher.state
    return len(str(state.draft.content)) if state is not None and state.draft is not None else 0


def has_answers(watcher: Watcher) -> int:
    """Return the number of answers with text."""
    return sum(role == "assistant" and bool(text) for role, text in watcher.messages) if watcher.state else 0


PHASES: dict[str, Phase] = {
    "start": lambda w: True,
    "step": lambda w: is_step(w, "plan"),
    "thread": lambda w: is_step(w, "again"),
    "first answer": lambda w: shown_characters(w) > 60,
    "gather": lambda w: is_step(w, "thread"),
    "race": lambda w: is_step(w, "quick") or is_step(w, "thread", "done"),
    "approval": lambda w: w.state is not None and bool(w.state.runtime.pause_reasons),
    "client": lambda w: w.state is not None and bool(w.state.runtime.ide_calls),
    "tool": lambda w: w.state is not None and any(call.name == "charge" for call in w.state.runtime.tools),
    "ask": lambda w: is_step(w, "Which one?", "waiting"),
    "sleep": lambda w: w.state is not None and "sleeping until" in (w.state.runtime.status_text or ""),
    "last answer": lambda w: has_answers(w) >= 1 and is_step(w, "Which one?", "done") and shown_characters(w) > 20,
}
"""Conditions that a client sees at the moments around which an owner is killed."""


class Story:
    """The results of one run. `violations` are sentences."""

    def __init__(self, chat_id: str, phase: str) -> None:
        self.chat_id = chat_id
        self.phase = phase
        self.kills: list[float] = []
        self.owners_killed = 0
        self.takeover_seconds: list[float] = []
        self.unknown_count = 0
        self.violations: list[str] = []


async def play(
    fleet: Fleet,
    chat_id: str,
    chance: random.Random,
    phase: str,
    faults: str,
    *,
    phases: Mapping[str, Phase] = PHASES,
    may_be_interrupted: bool = False,
    judge: Callable[[Story, Watcher, list[JsonObject]], None] | None = None,
) -> Story:
    """Play one run. `faults` is "" for no fault, "one" for a kill, "two" for two kills in a row, or "store", which
    kills the store and starts it again. `judge` replaces the check of the text and the effects of the durable agent.
    With `may_be_interrupted`, the run may also end as `interrupted`."""
    story = Story(chat_id, phase)
    one, other = TimedWatcher(chat_id), Watcher(chat_id)
    async with (
        httpx2.AsyncClient(timeout=60, base_url=fleet.url) as http,
        watching(fleet.url, chat_id, watcher=one),
        watching(fleet.url, chat_id, watcher=other),
    ):
        await _post(http, chat_id, user_message("begin", "go", params={"mode": "journey"}))
        person = asyncio.create_task(_answer(http, one))
        try:
            async with asyncio.timeout(RUN_SECONDS):
                if faults != "none":
                    await _strike(fleet, one, story, chance, faults, phases[phase])
                async with watching(fleet.url, chat_id) as late:
                    await one.at_rest(seconds=RUN_SECONDS)
                    await other.until(lambda w: w.state == one.state)
                    await late.at_rest(seconds=RUN_SECONDS)
                    await _settled(one, late)
                    # Compare the present states, since the ack of a late decision may still follow.
                    _judge_clients(story, one, late, may_be_interrupted=may_be_interrupted)
        except (TimeoutError, AssertionError, ExceptionGroup) as wrong:
            shown = one.state.runtime if one.state is not None else None
            story.violations.append(f"the run did not end, or a stream did: {wrong!r}; {shown}")
            return story
        finally:
            person.cancel()
    (judge or _judge_text)(story, one, effects_of(fleet.data / "effects", chat_id))
    story.takeover_seconds = one.gaps()
    return story


async def _settled(one: Watcher, late: Watcher) -> None:
    """Wait until both readers have the same state, because a title may come after the run has ended. A difference that
    remains is judged later."""
    for _ in range(200):
        if one.snapshot == late.snapshot:
            return
        await asyncio.sleep(0.05)


async def _post(http: httpx2.AsyncClient, chat_id: str, body: JsonObject) -> None:
    """Post a command until the server has taken it; a repetition has the same request id."""
    while True:
        try:
            answer = await http.post(f"/v1/chats/{chat_id}/commands", json=body)
            if answer.status_code in (200, 202):
                return
        except httpx2.TransportError:
            pass
        await asyncio.sleep(0.1)


async def _answer(http: httpx2.AsyncClient, watcher: Watcher) -> None:
    """Answer each question and each call of a client tool, once, as a person does."""
    answered: set[str] = set()
    while True:
        await asyncio.sleep(0.15)
        state = watcher.state
        if state is None:
            continue
        for reason in state.runtime.pause_reasons:
            if reason.tool_call_id not in answered:
                answered.add(reason.tool_call_id)
                decision: JsonObject = {
                    "tool_call_id": reason.tool_call_id,
                    "accepted": True,
                    "input_hash": reason.input_hash,
                }
                if reason.type == "question":
                    decision["edited_input"] = {"answer": "short"}
                body = {"type": "tool_decisions", "client_request_id": f"d-{reason.tool_call_id}"}
                await _post(http, watcher.chat_id, {**body, "decisions": [decision]})
        for call in state.runtime.ide_calls:
            if call.tool_call_id not in answered:
                answered.add(call.tool_call_id)
                body = {"type": "ide_tool_result", "client_request_id": f"i-{call.tool_call_id}"}
                await _post(http, watcher.chat_id, {**body, "tool_call_id": call.tool_call_id, "content": "blue"})


async def _strike(
    fleet: Fleet, watcher: Watcher, story: Story, chance: random.Random, faults: str, phase: Phase
) -> None:
    """Wait for the phase and a random moment within it, and kill."""
    await watcher.until(lambda w: phase(w) or w.runs_ended)
    await asyncio.sleep(chance.uniform(0, 0.4))
    if faults == "store":
        fleet.store.kill()
        story.kills.append(time.time())
        await asyncio.sleep(chance.uniform(0, 1.0))
        fleet.store.start()
        return
    await _kill(fleet, story, chance)
    if faults == "two":
        for _ in range(300):  # until another worker has the chat
            if fleet.owner(story.chat_id) is not None:
                break
            await asyncio.sleep(0.02)
        await asyncio.sleep(chance.uniform(0, 0.3))
        await _kill(fleet, story, chance)


async def _kill(fleet: Fleet, story: Story, chance: random.Random) -> None:
    """Kill the owner by kill -9, or any worker if the chat has no owner, and start another worker."""
    story.kills.append(time.time())
    if fleet.kill_owner(story.chat_id):
        story.owners_killed += 1
    else:
        victim = chance.choice(fleet.workers)
        victim.kill()
        fleet.workers.remove(victim)
    await fleet.add_worker()


def _judge_clients(story: Story, one: Watcher, late: Watcher, *, may_be_interrupted: bool = False) -> None:
    """Check that all clients have exactly the same state, and that a snapshot with the events after it equals the later
    snapshot."""
    if late.snapshot != one.snapshot:
        story.violations.append("a client that came later has another state")
    if one.snapshots != 1:
        story.violations.append(f"the client that stayed got {one.snapshots} snapshots")
    is_interrupted = may_be_interrupted and one.state is not None and one.state.runtime.outcome == "interrupted"
    wrong = [event for event in one.events if isinstance(event, ErrorHappened)]
    if wrong and not (is_interrupted and {event.code for event in wrong} == {"interrupted"}):
        story.violations.append(f"an error: {wrong[0].code}: {wrong[0].message}")
    first = late.frames[0]
    position = int(late.last_id.split("-")[2])  # the base of the chat's only snapshot
    base = int(one.last_id.split("-")[2])
    if late.snapshots == 1 and first["type"] == "snapshot" and position >= base:
        then = one.state_after(position - base)
        shown = {key: value for key, value in first.items() if key not in ("chat_id", "seq")}
        if json.loads(encode(snapshot_of(then))) != shown:
            story.violations.append(f"the state after event {position - base} is not the snapshot of that moment")
    if one.state is not None and one.state.runtime.outcome != "complete" and not is_interrupted:
        story.violations.append(f"the outcome is {one.state.runtime.outcome}")


def effects_of(file: Path, chat_id: str) -> list[JsonObject]:
    """Return the lines of the file of effects that belong to this chat."""
    lines = (json.loads(line) for line in file.read_text().splitlines()) if file.exists() else ()
    return [line for line in lines if line["chat"] == chat_id]


def _judge_text(story: Story, watcher: Watcher, effects: list[JsonObject]) -> None:
    """Check that the text equals the text of an undisturbed run; only the results of operations that a kill interrupted
    may be unknown."""
    text = watcher.messages[-1][1]
    said: dict[str, str] = {}
    for name in ONCE:
        begun = [each["at"] for each in effects if (each["name"], each["what"]) == (name, "begin")]
        ended = [each["at"] for each in effects if (each["name"], each["what"]) == (name, "end")]
        if len(begun) > 1:
            story.violations.append(f"{name} had its effect {len(begun)} times")
        is_known = _expected({**dict.fromkeys(ONCE, "?"), name: name}, name) in text
        said[name] = name if is_known else UNKNOWN
        if is_known and not (begun and ended):
            story.violations.append(f"{name} has returned a result without its effect")
        if not is_known:
            story.unknown_count += 1
            from_at = begun[0] - SLACK_SECONDS if begun else float("-inf")
            to_at = ended[0] + SLACK_SECONDS if ended else float("inf")
            if not any(from_at <= kill <= to_at for kill in story.kills):
                story.violations.append(f"{name} is unknown, but no kill has cut it")
    whole = _text(said)
    if text != whole:
        story.violations.append(f"the text is {text!r} and not {whole!r}")
    keys = Counter(each["key"] for each in effects if each["name"] == "again")
    if len(keys) != 1:
        story.violations.append(f"the idempotent step had the keys {sorted(keys)}")


def _expected(said: dict[str, str], name: str) -> str:
    """Return the part of the text that shows that operation `name` has returned its result."""
    return {
        "plan": f"{said['plan']}, again, KeyError",
        "charge": f"{said['charge']}, {said['thread']}, "[: len(said["charge"]) + 2],
        "thread": f", {said['thread']}, ",
        "write-down": f"{said['write-down']}; ",
    }[name]


def _text(said: dict[str, str]) -> str:
    """Return the last answer of a run whose operations returned `said`."""
    first_answer = "".join(WORDS) + f"{said['plan']}; "
    plan = f"{said['plan']}, again, KeyError, {LARGE_CHARACTERS}, {len(first_answer)}, True"
    together = f"{said['charge']}, {said['thread']}, {said['write-down']}; , 1 quick tea-1 tea-2, blue"
    return "".join(WORDS) + "".join(f"{part}; " for part in (plan, together, "short"))


def undisturbed_text() -> str:
    """Return the last answer of a run without faults."""
    return _text({name: name for name in ONCE})


def bound_seconds() -> float:
    """Return the present time limit of a takeover for this machine."""
    return bar_seconds(TAKEOVER_SECONDS)
