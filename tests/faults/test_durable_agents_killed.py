"""Durable agents under faults: kill -9, planned hand-overs, a store that is away, and deploys of changed code."""

import signal
import time
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from tests.faults.durable_app import FIRST_PART, SECOND_PART
from tests.support.fleet import FAST, Fleet
from tests.support.reader import TimedWatcher, Watcher, watching
from tests.support.server import DEADLINE_SECONDS, command, user_message
from threadcast_protocol.wire.events import ErrorHappened, PauseReason
from threadcast_protocol.wire.messages import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.row("AGT-2")]

APP = Path(__file__).parent / "durable_app.py"
ANSWER = FIRST_PART + SECOND_PART
HANDOVER_SECONDS = 1.0
"""The longest planned hand-over (DESIGN §4.6)."""


def effects(fleet: Fleet) -> list[str]:
    file = fleet.data / "effects"
    return file.read_text().splitlines() if file.exists() else []


async def until_effect(fleet: Fleet, text: str, count: int = 1) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        while effects(fleet).count(text) < count:
            await anyio.sleep(0.01)


def open_gate(fleet: Fleet, name: str) -> None:
    fleet.data.mkdir(exist_ok=True)
    (fleet.data / name).touch()


async def say(fleet: Fleet, mode: str, text: str = "hello", chat_id: str = "c1", **params: object) -> None:
    answer = await command(fleet.url, chat_id, user_message("a", text, params={"mode": mode, **params}))
    assert answer.status_code == 202, answer.text


async def asked(watcher: Watcher, count: int = 1) -> list[PauseReason]:
    """Wait until this number of questions is open, and return them."""
    await watcher.until(lambda w: w.state is not None and len(w.state.runtime.pause_reasons) == count)
    assert watcher.state is not None
    return watcher.state.runtime.pause_reasons


async def decide(fleet: Fleet, reason: PauseReason, accepted: bool = True, answer: str | None = None) -> None:
    decision: JsonObject = {"tool_call_id": reason.tool_call_id, "accepted": accepted, "input_hash": reason.input_hash}
    if answer is not None:
        decision["edited_input"] = {"answer": answer}
    body = {"type": "tool_decisions", "client_request_id": f"d-{reason.input_hash[:32]}", "decisions": [decision]}
    sent = await command(fleet.url, "c1", body)
    assert sent.status_code == 202, sent.text


async def deploy(fleet: Fleet, code: str) -> None:
    """Start a worker with other code, and kill all other workers."""
    former, fleet.workers = fleet.workers, []
    fleet.data.mkdir(exist_ok=True)
    (fleet.data / "code").write_text(code)
    await fleet.add_worker()
    for worker in former:
        worker.kill()


async def killed(fleet: Fleet) -> None:
    """Kill the owner of the chat."""
    assert fleet.kill_owner("c1")


async def equal(fleet: Fleet, stayed: Watcher) -> None:
    """Check that a client that connects now has exactly the same state."""
    async with watching(fleet.url, "c1") as joined:
        assert joined.snapshot == stayed.snapshot
    assert stayed.snapshots == 1
    assert not any(isinstance(event, ErrorHappened) and event.code == "crash_loop" for event in stayed.events)


def shown(watcher: Watcher) -> str:
    state = watcher.state
    return str(state.draft.content) if state is not None and state.draft is not None else ""


def error_of(watcher: Watcher) -> ErrorHappened:
    return next(event for event in watcher.events if isinstance(event, ErrorHappened))


def steps_of(watcher: Watcher) -> dict[str, str]:
    assert watcher.state is not None
    return {each.name: each.status for each in watcher.state.runtime.agent_steps}


@pytest.mark.parametrize("text", ["one", "gather"])
async def test_a_planned_hand_over_takes_a_second_and_cuts_no_step_that_ends_within_it(fleet: Fleet, text: str) -> None:
    async with watching(fleet.url, "c1", watcher=TimedWatcher("c1")) as stayed:
        await say(fleet, "short", text)
        await until_effect(fleet, "s2 begins" if text == "gather" else "s begins")
        owner = fleet.owner("c1")
        assert owner is not None
        begun = time.monotonic()
        owner.send(signal.SIGTERM)
        with anyio.fail_after(DEADLINE_SECONDS):
            while fleet.owner("c1") is owner:
                await anyio.sleep(0.01)
        assert time.monotonic() - begun < HANDOVER_SECONDS
        await stayed.at_rest()
        names = ["s0", "s1", "s2"] if text == "gather" else ["s"]
        assert stayed.messages[-1] == ("assistant", ", ".join(f"{name} ends" for name in names))
        assert sorted(effects(fleet)) == sorted(f"{name} {what}" for name in names for what in ("begins", "ends"))
        await equal(fleet, stayed)


async def test_a_step_that_takes_longer_than_a_hand_over_has_an_unknown_outcome(fleet: Fleet) -> None:
    async with watching(fleet.url, "c1") as stayed:
        await say(fleet, "waits")
        await until_effect(fleet, "at slow")
        owner = fleet.owner("c1")
        assert owner is not None
        owner.send(signal.SIGTERM)
        await stayed.at_rest()
        assert stayed.messages[-1] == ("assistant", "unknown")
        assert effects(fleet) == ["at slow"]
        await equal(fleet, stayed)


@pytest.mark.row("AGT-5")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_the_same_text_is_neither_removed_nor_repeated(fleet: Fleet, number: signal.Signals) -> None:
    async with watching(fleet.url, "c1") as stayed:
        await say(fleet, "answers")
        await stayed.until(lambda w: shown(w) == FIRST_PART)
        owner = fleet.owner("c1")
        assert owner is not None
        before = len(stayed.frames)
        owner.send(number)
        await until_effect(fleet, "at written", 2)
        open_gate(fleet, "written")
        await stayed.at_rest()
        assert stayed.messages[-1] == ("assistant", ANSWER)
        assert "message_removed" not in stayed.types()
        sent = [op for frame in stayed.frames[before:] for op in frame.get("ops", [])]
        texts = "".join(op.get("text", "") for op in sent if "text" in op)
        assert texts == SECOND_PART, "what people had seen was sent again"
        assert stayed.state is not None
        message = stayed.state.nodes[stayed.state.path[-1]]
        assert (message.reasoning_content, len(message.citations)) == ("thinking ", 1)
        await equal(fleet, stayed)


@pytest.mark.row("AGT-5")
@pytest.mark.parametrize(
    ("code", "text"), [("different", "another beginning, " + SECOND_PART), ("shorter", FIRST_PART[:6])]
)
async def test_another_text_replaces_the_shown_one_visibly(fleet: Fleet, code: str, text: str) -> None:
    async with watching(fleet.url, "c1") as stayed:
        await say(fleet, "answers")
        await stayed.until(lambda w: shown(w) == FIRST_PART)
        await deploy(fleet, code)
        open_gate(fleet, "written")
        await stayed.at_rest()
        assert stayed.messages == [("user", "hello"), ("assistant", text)]
        assert stayed.types().count("message_removed") == 1
        await equal(fleet, stayed)


@pytest.mark.row("AGT-5")
async def test_a_function_with_the_keyword_shown_continues_after_it(fleet: Fleet) -> None:
    async with watching(fleet.url, "c1") as stayed:
        await say(fleet, "answers", "shown")
        await stayed.until(lambda w: shown(w) == FIRST_PART)
        await killed(fleet)
        await until_effect(fleet, f"shown={FIRST_PART}")
        open_gate(fleet, "written")
        await stayed.at_rest()
        assert stayed.messages[-1] == ("assistant", ANSWER)
        assert "message_removed" not in stayed.types()
        await equal(fleet, stayed)


async def test_on_owner_loss_stop_ends_the_run_that_was_in_an_answer(fleet: Fleet) -> None:
    async with watching(fleet.url, "c1") as stayed:
        await say(fleet, "answers", on_owner_loss="stop")
        await stayed.until(lambda w: shown(w) == FIRST_PART)
        await killed(fleet)
        await stayed.at_rest()
        assert stayed.state is not None
        assert stayed.state.runtime.outcome == "interrupted"
        assert stayed.messages[-1] == ("assistant", FIRST_PART)
        await equal(fleet, stayed)


async def test_a_store_that_is_away_for_longer_than_the_lease_stops_a_step_that_may_not_run_twice(fleet: Fleet) -> None:
    async with watching(fleet.url, "c1") as stayed:
        await say(fleet, "waits")
        await until_effect(fleet, "at slow")
        fleet.store.signal(signal.SIGSTOP)
        await anyio.sleep(2 * float(FAST["LEASE_SECONDS"]))  # the fault itself: a time without the store
        open_gate(fleet, "slow")
        await anyio.sleep(0.2)
        fleet.store.signal(signal.SIGCONT)
        await stayed.at_rest()
        assert stayed.messages[-1] == ("assistant", "unknown")
        assert effects(fleet) == ["at slow"]
        await equal(fleet, stayed)


@pytest.mark.row("AGT-4")
@pytest.mark.parametrize(
    ("code", "recorded", "now"),
    [
        ("renamed", "step one", "has 'step renamed'"),
        ("removed", "step one", "has 'call search'"),
        ("reordered", "step one", "has 'call search'"),
        ("arguments", "call search", "has 'call search with other arguments'"),
        ("ended", "ask Go on?", "ends"),
    ],
)
async def test_changed_code_ends_the_run_and_names_both_operations(
    fleet: Fleet, code: str, recorded: str, now: str
) -> None:
    async with watching(fleet.url, "c1") as stayed:
        await say(fleet, "steps")
        [question] = await asked(stayed)
        await deploy(fleet, code)
        await decide(fleet, question, answer="yes")
        await stayed.at_rest()
        error = error_of(stayed)
        assert error.code == "nondeterminism"
        assert (
            f"the log has the operation {recorded!r} where the code now {now} (durable_app.py, line " in error.message
        )
        assert stayed.state is not None
        assert stayed.state.runtime.outcome == "error"
        await equal(fleet, stayed)


@pytest.mark.row("AGT-4")
async def test_a_version_lets_old_runs_go_on_the_old_way_in_loops_and_branches(fleet: Fleet) -> None:
    async with watching(fleet.url, "c1") as stayed:
        await say(fleet, "versions")
        [question] = await asked(stayed)
        await deploy(fleet, "new")
        await decide(fleet, question, answer="yes")
        await stayed.at_rest()
        assert stayed.messages[-1] == ("assistant", "old0 old1 old2 new0 new1"), "the branches were reached in new code"
        await command(fleet.url, "c1", user_message("b", "again", params={"mode": "versions"}))
        await stayed.at_rest(2)
        assert stayed.messages[-1] == ("assistant", "new0 new1 new2 new0 new1")


@pytest.mark.row("AGT-4")
async def test_a_branch_that_was_reached_in_old_code_goes_on_the_old_way(fleet: Fleet) -> None:
    async with watching(fleet.url, "c1") as stayed:
        await say(fleet, "versions")
        [loop] = await asked(stayed)
        await decide(fleet, loop, answer="yes")
        await stayed.until(lambda w: steps_of(w).get("In a branch?") == "waiting")
        [branch] = await asked(stayed)
        await deploy(fleet, "new")
        await decide(fleet, branch, answer="yes")
        await stayed.at_rest()
        assert stayed.messages[-1] == ("assistant", "old0 old1 old2 old0 old1")


@pytest.mark.row("AGT-4")
async def test_a_worker_without_the_agent_hands_the_chat_on_and_can_abort(fleet: Fleet) -> None:
    async with watching(fleet.url, "c1") as stayed:
        await say(fleet, "steps")
        [question] = await asked(stayed)
        await deploy(fleet, "missing")
        await decide(fleet, question, answer="yes")
        await fleet.until_logged("chat.lacks_agent", 2)
        (fleet.data / "code").write_text("")
        await fleet.add_worker()
        await stayed.at_rest()
        assert stayed.messages[-1] == ("assistant", "done")
        await equal(fleet, stayed)


@pytest.mark.row("AGT-4")
async def test_a_worker_without_the_agent_can_abort_its_run_and_go_on_with_others(fleet: Fleet) -> None:
    async with watching(fleet.url, "c1") as stayed:
        await say(fleet, "steps")
        [question] = await asked(stayed)
        await deploy(fleet, "missing")
        await decide(fleet, question, answer="yes")
        await fleet.until_logged("chat.lacks_agent")
        await command(fleet.url, "c1", {"type": "abort", "client_request_id": "stop"})
        await command(fleet.url, "c1", user_message("b", "next", params={"mode": "answers"}))
        await stayed.until(lambda w: shown(w) == FIRST_PART)
        passed_on = len(fleet.logged("chat.lacks_agent"))
        open_gate(fleet, "written")
        await stayed.at_rest(2)
        assert stayed.messages[-1] == ("assistant", ANSWER)
        assert stayed.state is not None
        assert len(fleet.logged("chat.lacks_agent")) == passed_on, "the next run's agent is here"
        await equal(fleet, stayed)


async def test_a_takeover_keeps_the_open_questions_while_another_branch_works(fleet: Fleet) -> None:
    async with watching(fleet.url, "c1") as stayed:
        await say(fleet, "two")
        reasons = {reason.command: reason for reason in await asked(stayed, 3)}
        await decide(fleet, reasons["Begin?"], answer="yes")
        await until_effect(fleet, "at work")
        await killed(fleet)
        await until_effect(fleet, "at work", 2)
        left = {reason.command: reason for reason in await asked(stayed, 2)}
        assert left.keys() == reasons.keys() - {"Begin?"}
        await decide(fleet, left.pop("Well?"), answer="I am")
        [payment] = left.values()
        await decide(fleet, payment)
        await until_effect(fleet, "charged 7")
        open_gate(fleet, "work")
        await stayed.at_rest()
        assert stayed.messages[-1] == ("assistant", "work I am charged 7")
        assert effects(fleet).count("charged 7") == 1
        await equal(fleet, stayed)


@pytest.mark.parametrize("text", ["answer", "tool", "client", "ask", "step"])
async def test_the_losers_of_a_race_leave_nothing_open(fleet: Fleet, text: str) -> None:
    async with watching(fleet.url, "c1") as stayed:
        await say(fleet, "race", text)
        if text == "ask":
            reasons = {reason.command: reason for reason in await asked(stayed, 2)}
            await decide(fleet, reasons["Win?"], answer="wins")
        else:
            await until_effect(fleet, "at wins")
        if text == "answer":
            await stayed.until(lambda w: shown(w) == FIRST_PART)
        elif text == "tool":
            await until_effect(fleet, "at tool")
        elif text == "client":
            await stayed.until(lambda w: w.state is not None and bool(w.state.runtime.ide_calls))
        elif text == "step":
            await until_effect(fleet, "at written")
        open_gate(fleet, "wins")
        await until_effect(fleet, "at after")
        assert stayed.state is not None
        await stayed.until(lambda w: steps_of(w).get("after") == "running")
        runtime = stayed.state.runtime
        assert (stayed.state.draft, runtime.pause_reasons, runtime.ide_calls) == (None, [], [])
        await killed(fleet)
        await until_effect(fleet, "at after", 2)
        open_gate(fleet, "after")
        await stayed.at_rest()
        assert stayed.messages[-1] == ("assistant", "1 wins")
        if text == "answer":
            assert stayed.messages[-2] == ("assistant", FIRST_PART), "the text of the loser stays"
        await equal(fleet, stayed)


@pytest.mark.parametrize("text", ["answer", "call"])
async def test_an_unfinished_answer_goes_on_before_anything_else_is_added(fleet: Fleet, text: str) -> None:
    async with watching(fleet.url, "c1") as stayed:
        await say(fleet, "order", text)
        await until_effect(fleet, "at never")
        await stayed.until(lambda w: shown(w) == FIRST_PART)
        await killed(fleet)
        await until_effect(fleet, "at written", 2)
        open_gate(fleet, "written")
        await stayed.at_rest()
        answers = [content for role, content in stayed.messages if role == "assistant" and content]
        assert answers == [ANSWER, *(["the other"] if text == "answer" else []), "end"]
        assert "message_removed" not in stayed.types()
        await equal(fleet, stayed)


async def test_an_answer_begins_after_the_client_calls_of_other_branches(fleet: Fleet) -> None:
    async with watching(fleet.url, "c1") as stayed:
        await say(fleet, "looks")
        await until_effect(fleet, "at tool")
        open_gate(fleet, "until")
        await stayed.until(lambda w: steps_of(w).get("until") == "done")
        open_gate(fleet, "tool")  # the answer waits for the end of this tool; then the agent calls a client tool
        await stayed.until(lambda w: w.state is not None and bool(w.state.runtime.ide_calls))
        assert stayed.state is not None
        [call] = stayed.state.runtime.ide_calls
        body = {"type": "ide_tool_result", "client_request_id": "i", "tool_call_id": call.tool_call_id}
        await command(fleet.url, "c1", {**body, "content": "blue"})
        await stayed.at_rest()
        assert stayed.messages[-2:] == [("assistant", "an answer"), ("assistant", "blue and an answer")]
        await equal(fleet, stayed)


async def test_a_client_that_does_not_answer_in_time_fails_the_call_while_another_branch_works(fleet: Fleet) -> None:
    async with watching(fleet.url, "c1") as stayed:
        await say(fleet, "overdue")
        await until_effect(fleet, "No client answered this call within 1 s.")
        assert stayed.runs_ended == 0
        open_gate(fleet, "busy")
        await stayed.at_rest()
        assert stayed.messages[-1] == ("assistant", "No client answered this call within 1 s. busy")
        await equal(fleet, stayed)


async def test_sub_chats_that_end_while_nobody_owns_their_parent_wake_it(fleet: Fleet) -> None:
    async with watching(fleet.url, "c1") as stayed:
        await say(fleet, "parent", "2")
        await until_effect(fleet, "at read", 2)
        with anyio.fail_after(DEADLINE_SECONDS):
            while fleet.owner("c1") is not None:
                await anyio.sleep(0.01)
        for worker in fleet.workers:  # all sub-chats lose their owners, too
            worker.kill()
        fleet.workers.clear()
        open_gate(fleet, "read")
        await fleet.add_worker()
        await stayed.at_rest()
        assert stayed.messages[-1] == ("assistant", "2 pages, the last one said: read page1")
        await equal(fleet, stayed)


async def test_more_sub_chats_than_a_chat_keeps_run_one_after_the_other(fleet: Fleet) -> None:
    async with watching(fleet.url, "c1") as stayed:
        await say(fleet, "parent", "100")
        await until_effect(fleet, "at read")
        open_gate(fleet, "read")
        await until_effect(fleet, "at read", 40)
        fleet.kill_owner("c1")
        await stayed.at_rest()
        assert stayed.messages[-1] == ("assistant", "100 pages, the last one said: read page99")
        await equal(fleet, stayed)


async def test_a_gather_waits_for_all_branches_before_it_raises(fleet: Fleet) -> None:
    async with watching(fleet.url, "c1") as stayed:
        await say(fleet, "many")
        inner, outer = sorted(await asked(stayed, 2), key=lambda reason: reason.command)
        assert (inner.command, outer.command) == ("Inner?", "Outer?")
        await decide(fleet, inner, answer="yes")
        [left] = await asked(stayed, 1)
        assert stayed.runs_ended == 0
        await decide(fleet, left, answer="yes")
        await stayed.at_rest()
        assert stayed.messages[-1][1].startswith("failed: There is no tool 'nothin")


async def test_nobody_can_read_the_private_blob_of_a_large_result(fleet: Fleet) -> None:
    async with watching(fleet.url, "c1") as stayed:
        await say(fleet, "large")
        [question] = await asked(stayed)
        store: Any = fleet.store.client
        hashes = {
            part.decode().rpartition(":")[2] if b":" in part else part.decode()
            for key in store.scan_iter("*")
            if store.type(key) == b"hash"
            for part in store.hkeys(key)
            if len(part.rpartition(b":")[2]) == 64
        }
        assert hashes, "the large result is a blob"
        async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client:
            for each in hashes:
                answer = await client.get(f"{fleet.url}/v1/chats/c1/blobs/{each}")
                assert answer.status_code == 404, answer.headers
                part = {"type": "file", "blob": each, "name": "x.txt", "mime": "text/plain"}
                sent = await command(fleet.url, "c1", user_message(f"q{each[:8]}", "x", attachments=[part]))
                assert sent.status_code == 400, sent.text
            exported = (await client.get(f"{fleet.url}/v1/chats/c1/export")).text
        assert not any(each in exported for each in hashes)
        assert "xxxxxxxx" not in exported
        await decide(fleet, question, answer="yes")
        await stayed.at_rest()
        assert stayed.messages[-1] == ("assistant", "2000000 characters")
