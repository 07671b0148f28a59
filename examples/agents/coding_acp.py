"""A coding agent that speaks ACP, as a program of its own: `python examples/agents/coding_acp.py`.

It takes the place of goose, OpenCode, the Gemini CLI or another coding agent. A fixed plan stands in for its model: it
writes one file, if a person agrees.
"""

import asyncio
from typing import Any

import acp
from acp import schema

FILE, TEXT = "hello.py", 'print("Hello from the agent")\n'
OPTIONS = [
    schema.PermissionOption(option_id="yes", name="Allow", kind="allow_once"),
    schema.PermissionOption(option_id="no", name="Reject", kind="reject_once"),
]


class Coder:
    """The agent: one session, in the folder that the client names."""

    def on_connect(self, client: Any) -> None:
        self.client = client

    async def initialize(self, protocol_version: int, **more: Any) -> schema.InitializeResponse:
        return schema.InitializeResponse(protocol_version=1)

    async def new_session(self, cwd: str, **more: Any) -> schema.NewSessionResponse:
        self.path = f"{cwd}/{FILE}"
        return schema.NewSessionResponse(session_id="only")

    async def cancel(self, session_id: str, **more: Any) -> None:
        """Nothing takes long here."""

    async def prompt(self, prompt: list[Any], session_id: str, **more: Any) -> schema.PromptResponse:
        async def tell(update: Any) -> None:
            await self.client.session_update(session_id=session_id, update=update)

        await tell(acp.update_plan([acp.plan_entry(f"Write {FILE}", status="in_progress")]))
        await tell(acp.update_agent_message_text(f"I write {FILE}. "))
        change = [acp.tool_diff_content(self.path, TEXT)]
        call = schema.ToolCallUpdate(tool_call_id="w1", title=f"Write {FILE}", kind="edit", content=change)
        answer = await self.client.request_permission(session_id=session_id, tool_call=call, options=OPTIONS)
        if getattr(answer.outcome, "option_id", "no") != "yes":
            await tell(acp.update_agent_message_text("Then I leave it."))
            return schema.PromptResponse(stop_reason="end_turn")
        await self.client.write_text_file(session_id=session_id, path=self.path, content=TEXT)
        await tell(acp.update_tool_call("w1", status="completed"))
        await tell(acp.update_plan([acp.plan_entry(f"Write {FILE}", status="completed")]))
        await tell(acp.update_agent_message_text("It is written."))
        return schema.PromptResponse(stop_reason="end_turn")


if __name__ == "__main__":
    coder: Any = Coder()  # Any: has only the methods of acp.Agent that are called
    asyncio.run(acp.run_agent(coder))
