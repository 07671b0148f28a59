"""Serves a coding agent that speaks ACP (agentclientprotocol.com, version 1).

A run of the chat is one prompt of the agent. A prompt that has begun is never repeated: after a crash the chat's run
ends `interrupted`, the shown text remains, and the next message continues the agent's session.
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from threadcast.agents.acp.calls import KINDS
from threadcast.agents.acp.children import IDLE_SECONDS, Children, Program
from threadcast.agents.acp.editor import editor_tools
from threadcast.agents.acp.session import Files
from threadcast.agents.acp.stream import PromptStream
from threadcast.custom_agents.agent import Agent
from threadcast.custom_agents.context import AgentContext
from threadcast.custom_agents.seam import AttemptCut
from threadcast.custom_agents.serving import AgentTool, serve_agent
from threadcast.tools.base import Policy
from threadcast.tools.programs_user import ProgramsUser
from threadcast_protocol.wire.errors import ModelFailed

__all__ = ["SILENCE_SECONDS", "serve"]

SILENCE_SECONDS = 300.0

CUT = "The agent was stopped with the server. What it said until then stays."

STOPPED = {
    "refusal": ("llm_error", "The agent refused to go on."),
    "max_tokens": ("limit", "The agent has reached its limit of tokens."),
    "max_turn_requests": ("limit", "The agent has reached its limit of requests in one prompt."),
}
"""The stop reasons of a prompt that count as errors (ACP, `StopReason`)."""

DESCRIPTIONS = {
    "read": "Reads files.",
    "edit": "Changes files.",
    "delete": "Deletes files.",
    "move": "Moves files.",
    "search": "Searches.",
    "execute": "Runs commands.",
    "think": "Thinks.",
    "fetch": "Fetches from the network.",
    "switch_mode": "Switches the agent's mode.",
    "other": "Does something else.",
}


def serve(
    command: Sequence[str],
    *,
    name: str,
    title: str = "",
    description: str = "",
    env: Sequence[str] = (),
    workspace: str | Path = "workspaces",
    policies: Mapping[str, Policy] | None = None,
    mode: str = "",
    model: str = "",
    files: Files = "workspace",
    idle_seconds: float = IDLE_SECONDS,
    silence_seconds: float = SILENCE_SECONDS,
    user: ProgramsUser | None = None,
) -> Agent:
    """Serve the program `command` under the profile `name`.

    The program gets the variables PATH, HOME, LANG and TMPDIR, and the variables named in `env`. Each chat has a folder
    below `workspace`. `policies` maps ACP's kinds of calls (`calls.KINDS`) to the policies for permissions that the
    agent requests; the default is `ask`. `mode` and `model` are set in each new session. `files` chooses the side that
    serves the files that the agent requests. workspace: the server, below the chat's folder. client: the watching
    client, which then also runs the agent's commands. none: the agent reads and writes files itself. The program ends
    after `idle_seconds` without a prompt; `silence_seconds` is the maximum time without a message from the program
    during a prompt.

    Raises:
        TypeError: the name or a policy's kind is unknown, or the command is empty.
    """
    if not command or not all(isinstance(each, str) and each and "\0" not in each for each in command):
        raise TypeError(f"agent {name}: command is a list of a program and its arguments")
    if wrong := sorted(set(policies or {}) - set(KINDS)):
        raise TypeError(f"agent {name}: policies: {wrong[0]!r} is no kind of a call; kinds are {', '.join(KINDS)}")
    tools = [
        AgentTool(f"{name}_{kind}", description=DESCRIPTIONS[kind], policy=(policies or {}).get(kind, "ask"))
        for kind in KINDS
    ]
    if files == "client":
        tools += editor_tools(name)
    program = Program(
        name=name,
        command=list(command),
        env=list(env),
        workspace=Path(workspace).expanduser().absolute(),
        user=user,
        idle_seconds=idle_seconds,
        mode=mode,
        model=model,
        files=files,
    )
    function = _function(Children(program), name, silence_seconds)
    return serve_agent(function, name=name, title=title, description=description, tools=tools)


def _function(children: Children, name: str, silence_seconds: float) -> Any:  # Any: an async function of a context
    async def run(ctx: AgentContext) -> None:
        seam = ctx.seam
        seam.stay()
        if await seam.get("done"):
            return
        if await seam.get("begun"):
            raise AttemptCut(CUT)
        session, blocks = await children.take(ctx.chat_id, ctx.messages, seam.with_attachments)
        stream = PromptStream(seam, session, name, silence_seconds)
        is_usable = False
        try:
            await seam.put("begun", True)
            session.prompt(blocks)
            try:
                ended = await stream.show()
                is_usable = True
            except asyncio.CancelledError:
                is_usable = await session.cancel()
                raise
            except ModelFailed:
                await stream.end()
                raise
            await stream.end()
            await seam.put("done", True)
        finally:
            children.give_back(ctx.chat_id, session, stream.texts, is_usable=is_usable)
        if ended.stop_reason in STOPPED:
            raise ModelFailed(*STOPPED[ended.stop_reason])

    return run
