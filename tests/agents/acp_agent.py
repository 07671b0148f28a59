"""A coding agent that speaks ACP: `python acp_agent.py DIRECTORY`. The last words of the prompt choose what the agent
does. It records its effects as lines of files in DIRECTORY."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import acp
from acp import schema as s

DIRECTORY = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()
ALLOW = [
    s.PermissionOption(option_id="yes", name="Yes", kind="allow_once"),
    s.PermissionOption(option_id="always", name="Always", kind="allow_always"),
    s.PermissionOption(option_id="no", name="No", kind="reject_once"),
]
WORDS = [f"word{number} " for number in range(25)]


def note(file: str, text: str) -> None:
    with (DIRECTORY / file).open("a") as opened:
        opened.write(f"{text}\n")


class Coder:
    """The agent. Its sessions are files, so that another process can load them."""

    client: Any  # Any: a client of `acp`, called with the models' fields as keywords

    def on_connect(self, conn: Any) -> None:
        self.client = conn
        self.cancelled = asyncio.Event()
        self.cwd: dict[str, str] = {}

    async def initialize(self, protocol_version: int, **more: Any) -> s.InitializeResponse:
        able = s.AgentCapabilities(
            load_session="--no-load" not in sys.argv,
            session_capabilities=s.SessionCapabilities(resume=s.SessionResumeCapabilities())
            if "--resume" in sys.argv
            else None,
            prompt_capabilities=s.PromptCapabilities(image=True, embedded_context=True),
        )
        note("started", str(os.getpid()))
        return s.InitializeResponse(protocol_version=1, agent_capabilities=able)

    async def new_session(self, cwd: str, **more: Any) -> s.NewSessionResponse:
        session = f"s{os.urandom(4).hex()}"
        self.cwd[session] = cwd
        note("sessions", f"new {session}")
        modes = [s.SessionMode(id="code", name="Code"), s.SessionMode(id="plan", name="Plan")]
        option = s.SessionConfigOptionSelect(
            type="select",
            id="m",
            name="Model",
            category="model",
            current_value="small",
            options=[s.SessionConfigSelectOption(value="large", name="Large")],
        )
        return s.NewSessionResponse(
            session_id=session,
            modes=s.SessionModeState(current_mode_id="code", available_modes=modes),
            config_options=[option],
        )

    async def set_session_mode(self, mode_id: str, session_id: str, **more: Any) -> s.SetSessionModeResponse:
        note("sessions", f"mode {mode_id}")
        return s.SetSessionModeResponse()

    async def set_config_option(self, config_id: str, session_id: str, value: Any, **more: Any) -> Any:
        note("sessions", f"{config_id} {value}")
        return s.SetSessionConfigOptionResponse(config_options=[])

    async def load_session(self, cwd: str, session_id: str, **more: Any) -> s.LoadSessionResponse:
        self.cwd[session_id] = cwd
        note("sessions", f"load {session_id}")
        await self.say(session_id, "OLD WORDS ")
        return s.LoadSessionResponse()

    async def resume_session(self, cwd: str, session_id: str, **more: Any) -> s.ResumeSessionResponse:
        self.cwd[session_id] = cwd
        note("sessions", f"resume {session_id}")
        return s.ResumeSessionResponse()

    async def cancel(self, session_id: str, **more: Any) -> None:
        note("effects", "cancelled")
        self.cancelled.set()

    async def update(self, session: str, update: Any) -> None:
        await self.client.session_update(session_id=session, update=update)

    async def say(self, session: str, *texts: str, seconds: float = 0.0) -> None:
        for text in texts:
            await self.update(session, acp.update_agent_message_text(text))
            await asyncio.sleep(seconds)

    async def ask(self, session: str, call: str, title: str, **more: Any) -> str:
        update = s.ToolCallUpdate(tool_call_id=call, title=title, **more)
        found = await self.client.request_permission(session_id=session, tool_call=update, options=ALLOW)
        return getattr(found.outcome, "option_id", "cancelled")

    async def done(self, session: str, call: str, text: str, status: Any = "completed") -> None:
        content = [acp.tool_content(acp.text_block(text))]
        await self.update(session, acp.update_tool_call(call, status=status, content=content))

    async def prompt(self, prompt: list[Any], session_id: str, **more: Any) -> s.PromptResponse:
        note("prompts", json.dumps([each.model_dump(by_alias=True, exclude_none=True) for each in prompt]))
        self.cancelled.clear()
        words = prompt[-1].text if prompt[-1].type == "text" else "files"
        behaviour = getattr(self, words.split()[0].replace("-", "_"), None) or self.hello
        reason = await behaviour(session_id, words)
        usage = s.Usage(input_tokens=7, output_tokens=3, total_tokens=10)
        return s.PromptResponse(stop_reason=reason or "end_turn", usage=usage)

    async def hello(self, session: str, words: str) -> None:
        await self.update(session, acp.update_agent_thought_text("A greeting. "))
        await self.say(session, "Hello ", "there")

    async def plan(self, session: str, words: str) -> None:
        entry: dict[str, Any] = {"content": "Look", "priority": "high"}  # Any: fields of a model
        await self.say(session, "I plan. ")
        for status in ("pending", "completed"):
            await self.update(session, acp.update_plan([s.PlanEntry(**entry, status=status)]))
        await self.say(session, "Planned.")

    async def edit(self, session: str, words: str) -> None:
        await self.say(session, "I edit. ")
        path = f"{self.cwd[session]}/src/a.txt"
        diff = acp.tool_diff_content(path, "new text", None)
        await self.update(session, acp.start_tool_call("c1", "Edit a.txt", kind="edit", status="pending"))
        chosen = await self.ask(session, "c1", "Edit a.txt", kind="edit", content=[diff], raw_input={"path": "a.txt"})
        if chosen in ("yes", "always"):
            note("effects", "edit")
            await self.client.write_text_file(session_id=session, path=path, content="new text")
            read = await self.client.read_text_file(session_id=session, path=path)
            await self.update(session, acp.update_tool_call("c1", status="completed", content=[diff]))
            await self.say(session, f"{chosen}: {read.content}")
        else:
            await self.done(session, "c1", "not allowed", "failed")
            await self.say(session, chosen)

    async def terminal(self, session: str, words: str) -> None:
        made = await self.client.create_terminal(session_id=session, command="echo", args=["from", "shell"])
        await self.update(
            session,
            acp.start_tool_call(
                "t1",
                "Run echo",
                kind="execute",
                status="in_progress",
                raw_input={"command": "echo"},
                content=[acp.tool_terminal_ref(made.terminal_id)],
            ),
        )
        ended = await self.client.wait_for_terminal_exit(session_id=session, terminal_id=made.terminal_id)
        await self.update(session, acp.update_tool_call("t1", status="completed"))
        await self.client.release_terminal(session_id=session, terminal_id=made.terminal_id)
        await self.say(session, f"exit {ended.exit_code}")

    async def escape(self, session: str, words: str) -> None:
        cwd = Path(self.cwd[session])
        (cwd / "out").symlink_to(DIRECTORY)
        (cwd / "link.txt").symlink_to(DIRECTORY / "secret")
        for path in ("../../secret", str(DIRECTORY / "secret"), "out/secret", "link.txt", "nothing.txt"):
            whole = path if path.startswith("/") else f"{cwd}/{path}"
            try:
                found = await self.client.read_text_file(session_id=session, path=whole)
                await self.say(session, f"READ {found.content} ")
            except acp.RequestError:
                await self.say(session, "refused ")
            try:
                await self.client.write_text_file(session_id=session, path=f"{whole}.x", content="x")
                await self.say(session, "written ")
            except acp.RequestError:
                await self.say(session, "no ")

    async def remove(self, session: str, words: str) -> None:
        await self.say(session, f"remove: {await self.ask(session, 'r1', 'Delete a.txt', kind='delete')}")

    async def run(self, session: str, words: str) -> None:
        await self.say(session, f"run: {await self.ask(session, 'x1', 'Run make', kind='execute')}")

    async def unknown(self, session: str, words: str) -> None:
        """Finish a call that never began, and ask for permission for a call that no update has named."""
        await self.done(session, "never", "nothing")
        await self.say(session, f"asked: {await self.ask(session, 'new', 'Run it', kind='execute')}")

    async def many_calls(self, session: str, words: str) -> None:
        for number in range(600):
            call_id = "same" if words.endswith("same") else f"c{number}"
            await self.update(session, acp.start_tool_call(call_id, "Look", kind="read", status="in_progress"))
            await self.done(session, call_id, "seen")

    async def many_permissions(self, session: str, words: str) -> None:
        answers = [await self.ask(session, f"p{number}", "Run", kind="execute") for number in range(4)]
        await self.say(session, " ".join(answers))

    async def many_updates(self, session: str, words: str) -> None:
        await self.say(session, *["word "] * 20)

    async def silent(self, session: str, words: str) -> None:
        await self.say(session, "I think. ")
        await asyncio.Event().wait()

    async def forks(self, session: str, words: str) -> None:
        """Start a child process that ignores SIGTERM, and leave it running."""
        code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
        note("forked", str(process.pid))
        await self.say(session, "Forked.")

    async def editor(self, session: str, words: str) -> None:
        """Read and write a file of the client, and run a command at the client."""
        path = f"{self.cwd[session]}/src/a.txt"
        await self.say(session, "I look. ")
        try:
            read = await self.client.read_text_file(session_id=session, path=path, line=2, limit=1)
            await self.say(session, f"READ {read.content} ")
            await self.client.write_text_file(session_id=session, path=path, content="new")
        except acp.RequestError as wrong:
            await self.say(session, f"FAILED {wrong} ")
            return
        made = await self.client.create_terminal(session_id=session, command="make", args=["-j2"])
        if words.endswith("leave"):
            await asyncio.Event().wait() if words.endswith("never leave") else await asyncio.sleep(0.5)
        else:
            ended = await self.client.wait_for_terminal_exit(session_id=session, terminal_id=made.terminal_id)
            said = await self.client.terminal_output(session_id=session, terminal_id=made.terminal_id)
            await self.client.release_terminal(session_id=session, terminal_id=made.terminal_id)
            await self.say(session, f"MADE {ended.exit_code} {said.output}")
        await self.say(session, "Done.")

    async def copies(self, session: str, words: str) -> None:
        """Read a file of the client and write it back; the last word is the number of characters that the agent
        adds."""
        path = f"{self.cwd[session]}/a.txt"
        try:
            read = await self.client.read_text_file(session_id=session, path=path)
            text = read.content + "x" * int(words.split()[-1])
            await self.client.write_text_file(session_id=session, path=path, content=text)
            await self.say(session, f"WRITTEN {len(text)}")
        except acp.RequestError as wrong:
            await self.say(session, f"FAILED {wrong}")

    async def slow(self, session: str, words: str) -> str:
        await self.say(session, "I begin. ")
        await self.cancelled.wait()
        return "cancelled"

    async def stubborn(self, session: str, words: str) -> None:
        await self.say(session, "I begin. ")
        await asyncio.Event().wait()

    async def environment(self, session: str, words: str) -> None:
        await self.say(session, json.dumps(sorted(os.environ)))

    async def dies(self, session: str, words: str) -> None:
        await self.say(session, "I try. ")
        await asyncio.sleep(0.1)
        os._exit(3)

    async def refuses(self, session: str, words: str) -> str:
        await self.say(session, "I try. ")
        return "refusal"

    async def floods(self, session: str, words: str) -> None:
        await self.say(session, "I try. ")
        os.set_blocking(1, True)
        sys.stdout.buffer.write(b"x" * 17_000_000)
        sys.stdout.flush()
        await asyncio.Event().wait()

    async def many_values(self, session: str, words: str) -> None:
        await self.say(session, "I try. ")
        os.set_blocking(1, True)
        sys.stdout.buffer.write(b"[" + b"1," * 100_001 + b"1]\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    agent: Any = Coder()  # Any: the object has only the methods of acp.Agent that are called
    asyncio.run(acp.run_agent(agent, use_unstable_protocol=True))  # `session/resume` is new
