"""Checks the limits on a program that speaks ACP, on its sessions, its files and its terminals. Each program is a real
process."""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from acp import schema

from tests.agents.test_acp_http import AGENT
from tests.support.server import DEADLINE_SECONDS
from threadcast.agents.acp import children as children_module
from threadcast.agents.acp import session as session_module
from threadcast.agents.acp import terminals as terminals_module
from threadcast.agents.acp import workspace as workspace_module
from threadcast.agents.acp.children import Children, Program
from threadcast.agents.acp.connection import INVALID_PARAMS, RESOURCE_NOT_FOUND, RequestFailed
from threadcast.agents.acp.session import Permission, Session
from threadcast.agents.acp.terminals import TERMINALS_MAX, Terminals
from threadcast.agents.acp.workspace import PARTS_MAX, Workspace
from threadcast.custom_agents.rounds import RoundMessage
from threadcast.tools.process_pool import ENVIRONMENT, OUTPUT_MAX_BYTES, ProcessPool
from threadcast_protocol.wire.errors import ModelFailed

pytestmark = [pytest.mark.anyio, pytest.mark.row("AGT-9")]


@asynccontextmanager
async def coders(directory: Path, *more: str, **values: Any) -> AsyncIterator[Children]:
    """Yield the programs of one worker, and end all programs afterwards."""
    command = [sys.executable, str(AGENT), str(directory), *more]
    children = Children(Program(name="coder", command=command, workspace=directory / "work", **values))
    taken: list[Session] = []
    started = children._started

    async def noted(chat_id: str, path: Sequence[RoundMessage]) -> Session:
        taken.append(await started(chat_id, path))
        return taken[-1]

    children._started = noted  # type: ignore[method-assign]
    try:
        yield children
    finally:
        await asyncio.gather(*(each.close() for each in taken))


def asked(text: str, message_id: str = "m1") -> list[RoundMessage]:
    return [RoundMessage(role="user", content=text, message_id=message_id)]


async def events(children: Children, text: str, silence_seconds: float = DEADLINE_SECONDS) -> list[object]:
    """Prompt the agent of a new chat, allow every request for permission, and return the agent's events. Raises
    ModelFailed."""
    session, blocks = await children.take("chat", asked(text))
    session.prompt(blocks)
    found: list[object] = []
    while (event := await session.next_event(silence_seconds)) is not None:
        found.append(event)
        if isinstance(event, Permission):
            event.answer.set_result("yes")
    session.ended()
    return found


def text_of(found: Sequence[object]) -> str:
    return "".join(
        each.content.text
        for each in found
        if isinstance(each, schema.AgentMessageChunk) and isinstance(each.content, schema.TextContentBlock)
    )


# programs


async def test_a_worker_runs_so_many_programs_and_the_oldest_idle_one_makes_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children_module, "CHILDREN_MAX", 2)
    async with coders(tmp_path) as children:
        first, _ = await children.take("a", asked("hello"))
        await children.take("b", asked("hello"))
        with pytest.raises(ModelFailed, match="2 chats use this agent now; try again soon") as refused:
            await children.take("c", asked("hello"))
        assert (refused.value.code, refused.value.retryable) == ("rate_limited", True)
        children.give_back("a", first, is_usable=True)
        await children.take("c", asked("hello"))
        assert first.broken, "it was idle, and has made room"


async def test_a_program_without_prompts_ends(tmp_path: Path) -> None:
    async with coders(tmp_path, idle_seconds=0.05) as children:
        session, _ = await children.take("a", asked("hello"))
        children.give_back("a", session, is_usable=True)
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not session.broken:
                await asyncio.sleep(0.01)
        again, _ = await children.take("a", asked("hello"))
        assert again is not session


async def test_a_program_that_says_nothing_at_its_start_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "START_SECONDS", 0.2)
    program = Program(name="coder", command=["/bin/sleep", "600"], workspace=tmp_path)
    with pytest.raises(ModelFailed) as failed:
        await Children(program).take("a", asked("hello"))
    assert failed.value.code == "timeout"


# prompts


async def test_a_prompt_has_so_many_updates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "UPDATES_MAX", 10)
    async with coders(tmp_path) as children:
        with pytest.raises(ModelFailed, match="more than 10 updates in one prompt") as failed:
            await events(children, "many-updates")
    assert failed.value.code == "limit"


async def test_a_prompt_asks_for_so_many_permissions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "PERMISSIONS_MAX", 2)
    async with coders(tmp_path) as children:
        assert text_of(await events(children, "many-permissions")) == "yes yes cancelled cancelled"


async def test_silence_ends_a_prompt(tmp_path: Path) -> None:
    async with coders(tmp_path) as children:
        with pytest.raises(ModelFailed, match=r"has sent nothing for 0\.2 seconds") as failed:
            await events(children, "silent", silence_seconds=0.2)
    assert failed.value.code == "timeout"


# files


def refused(call: Any, *given: Any) -> RequestFailed:
    with pytest.raises(RequestFailed) as failed:
        call(*given)
    return failed.value


def test_files_have_a_largest_size_and_are_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace_module, "FILE_MAX_BYTES", 10)
    workspace = Workspace(tmp_path / "work")
    workspace.write("a.txt", "0123456789")
    assert workspace.read("a.txt") == "0123456789"
    assert "at most 10 bytes" in str(refused(workspace.write, "a.txt", "0123456789x"))
    (workspace.root / "a.txt").write_text("0123456789x")
    assert "more than 10 bytes" in str(refused(workspace.read, "a.txt"))
    (workspace.root / "b.bin").write_bytes(b"\xff\xfe")
    assert "no text in UTF-8" in str(refused(workspace.read, "b.bin"))
    assert refused(workspace.read, "missing.txt").code == RESOURCE_NOT_FOUND


def test_lines_of_a_file(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "work")
    workspace.write("deep/er/a.txt", "1\n2\n3\n")
    assert workspace.read("deep/er/a.txt", 2, 1) == "2\n"
    assert workspace.read(f"{workspace.root}/deep/er/a.txt", 3) == "3\n"
    assert workspace.read("deep/er/a.txt", 0, -1) == ""


@pytest.mark.parametrize("path", ["..", "../x", "/etc/passwd", "a\0b", "", ".", "a/../../x", "pipe", "folder"])
def test_what_is_no_file_below_the_folder_is_refused(tmp_path: Path, path: str) -> None:
    import os

    workspace = Workspace(tmp_path / "work")
    os.mkfifo(workspace.root / "pipe")
    (workspace.root / "folder").mkdir()
    assert refused(workspace.read, path).code == INVALID_PARAMS


def test_a_path_has_so_many_parts(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "work")
    workspace.write("/".join(["d"] * PARTS_MAX + ["a.txt"]), "deep")
    assert "no path of a file" in str(refused(workspace.write, "/".join(["d"] * (PARTS_MAX + 1) + ["a.txt"]), "x"))


# terminals


@asynccontextmanager
async def terminals_in(directory: Path) -> AsyncIterator[Terminals]:
    import os

    environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    terminals = Terminals(ProcessPool(), "coder-1", Workspace(directory / "work"), environment)
    try:
        yield terminals
    finally:
        await terminals.close()


def wanted(command: str, *args: str, **more: Any) -> schema.CreateTerminalRequest:
    return schema.CreateTerminalRequest(session_id="s", command=command, args=list(args), **more)


async def test_so_many_terminals_are_open_and_a_released_one_makes_room(tmp_path: Path) -> None:
    async with terminals_in(tmp_path) as terminals:
        ids = [await terminals.create(wanted("sleep", "600")) for _ in range(TERMINALS_MAX)]
        with pytest.raises(RequestFailed, match="at most 16 terminals; release one first"):
            await terminals.create(wanted("sleep", "600"))
        await terminals.release(ids[0])
        await terminals.create(wanted("true"))
        with pytest.raises(RequestFailed, match="there is no terminal term-1"):
            terminals.output(ids[0])


async def test_a_command_has_a_largest_size_and_its_output_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with terminals_in(tmp_path) as terminals:
        with pytest.raises(RequestFailed, match="at most 131,072 bytes"):
            await terminals.create(wanted("echo", "x" * 131_072))
        terminal = await terminals.create(wanted("printf", "%s", "0123456789", output_byte_limit=4))
        assert (await terminals.wait(terminal)).exit_code == 0
        found = terminals.output(terminal)
        assert (found.output, found.truncated) == ("6789", True)
        large = await terminals.create(wanted("sh", "-c", f"head -c {2 * OUTPUT_MAX_BYTES} /dev/zero | tr '\\0' x"))
        await terminals.wait(large)
        assert len(terminals.output(large).output) <= OUTPUT_MAX_BYTES
        assert terminals.output(large).truncated
        monkeypatch.setattr(terminals_module, "RELEASED_MAX", 1)
        await terminals.release(terminal)
        await terminals.release(large)
        assert terminals.said(terminal) == ""
        assert terminals.said(large)


async def test_a_terminal_starts_below_the_folder_only(tmp_path: Path) -> None:
    async with terminals_in(tmp_path) as terminals:
        for folder in ("..", "/", "missing"):
            with pytest.raises(RequestFailed):
                await terminals.create(wanted("pwd", cwd=folder))
