"""Checks when a session of a coding agent continues a chat, and what an agent that breaks ACP's rules can do within a
session."""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.agents.test_acp_bounds import asked, text_of, wanted
from tests.support.server import DEADLINE_SECONDS
from threadcast.agents.acp import child as child_module
from threadcast.agents.acp import session as session_module
from threadcast.agents.acp.child import Child
from threadcast.agents.acp.children import MESSAGES_MAX, Children, Program, key_of, unseen
from threadcast.agents.acp.connection import INVALID_PARAMS, RequestFailed
from threadcast.agents.acp.editor import WRITE_MAX_CHARACTERS, EditorCall, EditorFiles, EditorTerminals
from threadcast.agents.acp.prompts import HISTORY_MAX_CHARACTERS, history_block
from threadcast.agents.acp.session import Session
from threadcast.agents.acp.terminals import ARGUMENTS_MAX_BYTES, RELEASED_MAX, TERMINALS_MAX
from threadcast.agents.acp.workspace import Workspace
from threadcast.custom_agents.rounds import RoundMessage
from threadcast_protocol.wire.errors import ModelFailed

pytestmark = [pytest.mark.anyio, pytest.mark.row("AGT-9")]


# which messages a session has seen


def path(*messages: str) -> list[RoundMessage]:
    """Return a path of messages: `u1 text` is a message of the user, `a1 text` one of the assistant."""
    roles = {"u": "user", "a": "assistant"}
    return [
        RoundMessage(role=roles[each[0]], message_id=each.split()[0], content=each.split(" ", 1)[1])
        for each in messages
    ]


def keys(*messages: str) -> list[str]:
    return [key_of(each.message_id, each.content) for each in path(*messages)]


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (["u1 a", "a1 b", "u2 c"], ["u2"]),
        (["u1 a", "a1 b", "u2 c", "u3 d"], ["u2", "u3"]),
        (["u1 a", "a1 b", "a2 part", "u2 c"], ["u2"]),  # after Stop the session lacks the last message of the answer
        (["u1 a", "a1 b"], []),
        (["u1 a"], []),
        (["u1 x", "a1 b", "u2 c"], []),  # edited in place
        (["u1 a", "a1 x", "u2 c"], []),
        (["u9 a", "a1 b", "u2 c"], []),  # another branch
        (["u1 a", "a9 b", "u2 c"], []),
        (["u1 a", "u2 c"], []),  # removed
        (["u1 a", "a1 b", "u2 c", "a2 d", "u3 e"], []),  # another agent has answered
    ],
)
def test_a_session_goes_on_only_with_the_conversation_that_it_knows(now: list[str], expected: list[str]) -> None:
    found = unseen(keys("u1 a"), keys("a1 b"), path(*now))
    assert [each.message_id for each in found] == expected


def test_after_a_crash_any_answer_may_follow_the_last_prompt() -> None:
    assert unseen(keys("u1 a"), [], path("u1 a", "a1 part", "u2 c")) == path("u2 c")
    assert unseen([], [], path("u1 a")) == []


def test_a_session_has_so_many_messages_and_a_history_so_many_characters() -> None:
    long = path(*(f"u{number} a" for number in range(MESSAGES_MAX)))
    seen = [key_of(each.message_id, each.content) for each in long[:-1]]
    assert unseen(seen, [], long) == long[-1:]
    longer = [*path("u-1 a"), *long]
    assert unseen([*keys("u-1 a"), *seen], [], longer) == []
    told = history_block(path("u1 " + "x" * HISTORY_MAX_CHARACTERS, "a1 the end"))
    assert told is not None
    assert HISTORY_MAX_CHARACTERS < len(told.text) < HISTORY_MAX_CHARACTERS + 100
    assert "the end" in told.text


# agents that break the rules


RAW = """
import json, signal, sys, time, os
def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
def hear():
    return json.loads(sys.stdin.readline())
def chunk(text, session="s1"):
    content = {"type": "text", "text": text}
    update = {"sessionUpdate": "agent_message_chunk", "content": content}
    say(method="session/update", params={"sessionId": session, "update": update})
def answer(result):
    message = hear()
    say(id=message["id"], result=result)
    return message
def begin(version=1):
    answer({"protocolVersion": version})
    answer({"sessionId": "s1"})
"""


def raw(directory: Path, code: str) -> Children:
    return Children(Program(name="raw", command=[sys.executable, "-c", RAW + code], workspace=directory / "work"))


async def said(session: Session, silence_seconds: float = DEADLINE_SECONDS) -> str:
    found: list[object] = []
    while (event := await session.next_event(silence_seconds)) is not None:
        found.append(event)
    session.ended()
    return text_of(found)


async def prompted(children: Children, *texts: str) -> tuple[Session, list[str]]:
    """Prompt the agent with each text, one after the other; return its session and answers."""
    answers: list[str] = []
    messages: list[RoundMessage] = []
    session: Session | None = None
    for number, text in enumerate(texts):
        messages += asked(text, f"m{number}")
        if session is not None:
            children.give_back("chat", session, is_usable=True)
        again, blocks = await children.take("chat", messages)
        assert session is None or again is session
        session = again
        session.prompt(blocks)
        answers.append(await said(session))
    assert session is not None
    return session, answers


async def test_updates_after_the_end_of_a_prompt_are_not_shown_in_the_next(tmp_path: Path) -> None:
    # Lines are read in order, so the answer to the request `x` proves that the update before this request was read.
    code = """
begin()
number = hear()["id"]; chunk("one"); say(id=number, result={"stopReason": "end_turn"})
chunk("LATE"); say(id="x", method="x"); hear(); open("read", "w").close()
number = hear()["id"]; chunk("two"); say(id=number, result={"stopReason": "end_turn"})
hear()"""
    children = raw(tmp_path, code)
    session, blocks = await children.take("chat", asked("a", "m0"))
    try:
        session.prompt(blocks)
        assert await said(session) == "one"
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not (tmp_path / "work" / "chat" / "read").exists():
                await asyncio.sleep(0.01)
        children.give_back("chat", session, is_usable=True)
        again, blocks = await children.take("chat", [*asked("a", "m0"), *asked("b", "m1")])
        assert again is session
        session.prompt(blocks)
        assert await said(session) == "two"
    finally:
        await session.close()


async def test_other_sessions_ids_and_repeated_answers_have_no_effect(tmp_path: Path) -> None:
    code = """
begin()
number = hear()["id"]
chunk("theirs", "s2"); chunk("ours")
for other in (number + 7, "text", None, [1], True):
    say(id=other, result={"stopReason": "refusal"})
say(id=4, method="fs/read_text_file", params={"sessionId": "s2", "path": "a.txt"})
chunk(" " + hear()["error"]["message"])
for _ in range(2):
    say(id=number, result={"stopReason": "end_turn"})
number = hear()["id"]; chunk("next"); say(id=number, result={"stopReason": "end_turn"})
hear()"""
    session, answers = await prompted(raw(tmp_path, code), "a", "b")
    await session.close()
    assert answers == ["ours there is no session s2", "next"]


async def test_an_agent_of_another_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFailed, match="speaks ACP 2, and not version 1"):
        await raw(tmp_path, "begin(2)").take("chat", asked("a"))


@pytest.mark.parametrize("result", ['"text"', '{"stopReason": "tired"}', "{}", "[[1]]"])
async def test_an_answer_that_does_not_fit_acp_ends_the_prompt(tmp_path: Path, result: str) -> None:
    code = f"begin()\nanswer({result})\nhear()"
    session, blocks = await raw(tmp_path, code).take("chat", asked("a"))
    try:
        session.prompt(blocks)
        with pytest.raises(ModelFailed, match="answer to session/prompt does not fit ACP"):
            await said(session)
    finally:
        await session.close()


async def test_a_program_that_closes_its_output_is_silent(tmp_path: Path) -> None:
    code = "begin()\nhear()\nchunk('last')\nos.close(1)\nhear()"
    session, blocks = await raw(tmp_path, code).take("chat", asked("a"))
    try:
        session.prompt(blocks)
        with pytest.raises(ModelFailed) as failed:
            await said(session, silence_seconds=0.3)
        assert failed.value.code in ("timeout", "connection")
    finally:
        await session.close()


async def test_a_program_that_ignores_sigterm_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "TERMINATE_SECONDS", 0.05)
    code = RAW + "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nsay(pid=os.getpid())\ntime.sleep(600)"
    child = await Child.start("raw", [sys.executable, "-c", code], cwd=str(tmp_path), env={}, user=None)
    line = await anext(child.read())
    pid = int(line.split(b":")[-1].strip(b"} \n"))
    await child.stop()
    async with asyncio.timeout(DEADLINE_SECONDS):
        while Path(f"/proc/{pid}").exists():
            await asyncio.sleep(0.01)


# the client's files and terminals


async def test_a_prompt_asks_the_client_so_many_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "EDITOR_CALLS_MAX", 1)
    code = """
begin()
number = hear()["id"]
for _ in range(2):
    say(id=9, method="fs/read_text_file", params={"sessionId": "s1", "path": "a.txt"})
    found = hear()
    chunk(found["result"]["content"] if "result" in found else found["error"]["message"])
say(id=number, result={"stopReason": "end_turn"})
hear()"""
    command = [sys.executable, "-c", RAW + code]
    children = Children(Program(name="raw", command=command, workspace=tmp_path / "work", files="client"))
    session, blocks = await children.take("chat", asked("a"))
    found: list[object] = []
    try:
        session.prompt(blocks)
        while (event := await session.next_event(DEADLINE_SECONDS)) is not None:
            found.append(event)
            if isinstance(event, EditorCall):
                event.answer.set_result("text, ")
    finally:
        await session.close()
    assert text_of(found) == "text, a prompt asks the client at most 1 times"


async def answers_at_once(call: EditorCall) -> str:
    return "x"


async def never_answers(call: EditorCall) -> str:
    await asyncio.Event().wait()
    return ""


def refused(failed: Sequence[RequestFailed], code: int = INVALID_PARAMS) -> bool:
    return all(each.code == code for each in failed)


async def test_files_of_the_client_have_a_largest_write_and_stand_in_the_project(tmp_path: Path) -> None:
    files = EditorFiles(answers_at_once, Workspace(tmp_path / "work"))
    frame = len('{"path":"a","content":""}')
    await files.write("a", "x" * (WRITE_MAX_CHARACTERS - frame))
    with pytest.raises(RequestFailed, match="at most 256,000 characters") as large:
        await files.write("a", "x" * (WRITE_MAX_CHARACTERS - frame + 1))
    with pytest.raises(RequestFailed, match="not below the workspace") as outside:
        await files.write("../a", "x")
    with pytest.raises(RequestFailed, match="not below the workspace") as absolute:
        await files.read("/etc/passwd", None, None)
    assert refused([large.value, outside.value, absolute.value])


async def test_the_client_runs_so_many_commands_at_once_and_their_output_is_kept_for_so_many(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "work")
    waiting = EditorTerminals(never_answers, workspace)
    ids = [await waiting.create(wanted("make")) for _ in range(TERMINALS_MAX)]
    with pytest.raises(RequestFailed, match="at most 16 terminals; release one first"):
        await waiting.create(wanted("make"))
    await waiting.release(ids[0])
    await waiting.create(wanted("make"))
    with pytest.raises(RequestFailed, match="at most 131,072 bytes"):
        await EditorTerminals(never_answers, workspace).create(wanted("x" * ARGUMENTS_MAX_BYTES))
    with pytest.raises(RequestFailed, match="not below the workspace"):
        await EditorTerminals(never_answers, workspace).create(wanted("make", cwd=".."))
    await waiting.close()
    ended = EditorTerminals(answers_at_once, workspace)
    ids = []
    for _ in range(RELEASED_MAX + 1):
        ids.append(await ended.create(wanted("make")))
        await ended.wait(ids[-1])
        await ended.release(ids[-1])
    assert [ended.said(each) for each in (ids[0], ids[1], ids[-1])] == ["", "x", "x"]


# races


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_folder_that_becomes_a_link_while_it_is_opened_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.txt").write_text("secret")
    workspace = Workspace(tmp_path / "work")
    folder = workspace.root / "d"
    folder.mkdir()
    (folder / "a.txt").write_text("ours")
    opened = os.open

    def open_and_swap(path: Any, *more: Any, **options: Any) -> int:
        if path != "d":
            return opened(path, *more, **options)
        found = opened(path, *more, **options) if moment == "after" else -1
        folder.rename(workspace.root / "moved")
        folder.symlink_to(outside)
        return found if found >= 0 else opened(path, *more, **options)

    monkeypatch.setattr(os, "open", open_and_swap)
    if moment == "after":
        assert workspace.read("d/a.txt") == "ours"
    else:
        with pytest.raises(RequestFailed):
            workspace.write("d/b.txt", "x")
    assert [each.name for each in outside.iterdir()] == ["a.txt"]
