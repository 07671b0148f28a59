"""The draft pack as an operator offers it: one line in the file of tools, and the function that saves an accepted
draft."""

from threadcast import JsonObject, tool
from threadcast.tools.workflow import ActionKind, draft_tools

start_draft, add_action, remove_action, preview_draft = draft_tools(
    [ActionKind("mail"), ActionKind("wait")], commit_tool="save_workflow"
)


@tool(retry="idempotent")
def save_workflow(name: str, actions: list[JsonObject], edges: list[JsonObject], object_id: str | None = None) -> str:
    """Save a workflow."""
    return f"Saved {name} as {object_id or 'new'}: {len(actions)} actions, {len(edges)} edges."
