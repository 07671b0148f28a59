"""Tools with which a model builds a workflow step by step: start, add, remove, preview (TOOL-11).

A draft is stored in its chat's memory: it survives restarts, other chats cannot see it, and it expires ten minutes
after its last use. Every change is checked by expanding the draft's edges, so that a mistake is reported at once. The
tool `preview_draft` shows the draft as a preview, which a person accepts or rejects (PROTOCOL §11).
"""

from collections.abc import Iterable
from typing import Annotated, NamedTuple

import msgspec

from threadcast.tools.base import ToolResult
from threadcast.tools.context import ToolContext
from threadcast.tools.preview import Preview
from threadcast.tools.python import PythonTool, tool
from threadcast.tools.traits import Traits, schema_of
from threadcast.tools.workflow.edges import Action, ActionKind, Edge, check_name, expand_edges, kinds_by_type
from threadcast_protocol.wire.errors import ToolFailed
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["DRAFT_SECONDS", "Draft", "DraftTools", "Workflow", "draft_of", "draft_tools"]

DRAFT_SECONDS = 600.0
"""Lifetime of a draft after its last use, in seconds (TOOL-11)."""

ACTIONS_MAX = 200
"""Maximum actions of one draft: more than a person can review, and small enough for a chat's memory."""

PREFIX = "workflow.draft."
"""The prefix of a draft's key in the chat's memory."""


class Draft(msgspec.Struct, frozen=True):
    name: str
    actions: list[Action] = []


class Workflow(msgspec.Struct, frozen=True):
    """The fields of a draft's preview, which are also the arguments of the commit tool."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    actions: list[Action]
    edges: list[Edge]


class DraftTools(NamedTuple):
    start: PythonTool
    add: PythonTool
    remove: PythonTool
    preview: PythonTool


DraftName = Annotated[str, msgspec.Meta(min_length=1, max_length=100, description="name of the draft")]


def draft_tools(
    kinds: Iterable[ActionKind],
    *,
    payload_type: str = "workflow",
    commit_tool: str = "",
    ttl_seconds: float = DRAFT_SECONDS,
) -> DraftTools:
    """Return the four tools for actions of these kinds. A draft is shown as a preview of `payload_type`, with the
    fields of `Workflow`. When a person accepts the preview, the tool `commit_tool` runs with these fields, and with
    `object_id` if the model named the workflow to change. Without a commit tool, the decision is only reported to the
    model.

    Raises:
        ValueError: two kinds have the same type.
    """
    known = kinds_by_type(kinds)

    def kept(draft: Draft, content: str, preview: Preview | None = None) -> ToolResult:
        memory: JsonObject = {PREFIX + draft.name: msgspec.to_builtins(draft)}
        return ToolResult(content=content, preview=preview, memory_patch=memory, memory_ttl_seconds=ttl_seconds)

    # These tools are not `safe`, because one of two concurrent changes of a draft would be lost.
    @tool(retry="idempotent", label_arg="draft")
    def start_draft(draft: DraftName, ctx: ToolContext) -> ToolResult:
        """Begin a new, empty draft of a workflow. An existing draft of that name is discarded."""
        before = " The earlier draft of that name is gone." if PREFIX + draft in ctx.memory else ""
        return kept(Draft(draft), f"Draft {draft!r} is empty.{before} Add actions; the first one has no `after`.")

    @tool(retry="idempotent", label_arg="name", description=_add_description(known))
    def add_action(
        draft: DraftName,
        name: Annotated[str, "unique in the draft, without a colon"],
        type: Annotated[str, "one of the known types"],
        ctx: ToolContext,
        after: Annotated[str, "'Name' or 'Name:port' of the action before it; empty for the first one"] = "",
        parameters: Annotated[JsonObject, "what the action needs"] = {},  # noqa: B006  # each call has its own
    ) -> ToolResult:
        found = draft_of(ctx, draft)
        check_name(name)
        if any(action.name == name for action in found.actions):
            raise ToolFailed(
                f"The draft has an action called {name!r} already; remove it first or choose another name."
            )
        if len(found.actions) >= ACTIONS_MAX:
            raise ToolFailed(f"A draft holds at most {ACTIONS_MAX} actions.")
        changed = Draft(found.name, [*found.actions, Action(name, type, after, parameters)])
        edge = expand_edges(changed.actions, known)[-1]
        where = f"after {edge.source}:{edge.port}" if edge.source is not None else "as the first action"
        return kept(changed, f"Added {name!r} {where}. The draft has {len(changed.actions)} actions.")

    @tool(retry="idempotent", label_arg="name")
    def remove_action(draft: DraftName, name: Annotated[str, "of the action"], ctx: ToolContext) -> ToolResult:
        """Remove an action from a draft. Remove the actions after it first."""
        found = draft_of(ctx, draft)
        left = [action for action in found.actions if action.name != name]
        if len(left) == len(found.actions):
            names = ", ".join(action.name for action in left) or "none"
            raise ToolFailed(f"The draft has no action called {name!r}; its actions: {names}.")
        if left:
            expand_edges(left, known)
        return kept(Draft(found.name, left), f"Removed {name!r}. The draft has {len(left)} actions.")

    traits = Traits(payload_type=payload_type, commit_tool=commit_tool, preview_schema=schema_of(Workflow))

    @tool(policy="preview", retry="idempotent", label_arg="draft", traits=traits)
    def preview_draft(
        draft: DraftName,
        ctx: ToolContext,
        name: Annotated[str, "of the workflow; empty for the draft's own name"] = "",
        workflow_id: Annotated[str, "of the workflow that it changes; empty for a new one"] = "",
    ) -> ToolResult:
        """Show a draft with all its actions and edges to the user, who accepts or rejects it."""
        found = draft_of(ctx, draft)
        called = name or draft
        shown: JsonObject = msgspec.to_builtins(Workflow(called, found.actions, expand_edges(found.actions, known)))
        what = f"Change to {called!r}" if workflow_id else f"New workflow {called!r}"
        return kept(found, "", Preview(f"{what}: {len(found.actions)} actions", shown, workflow_id or None))

    return DraftTools(start_draft, add_action, remove_action, preview_draft)


def draft_of(ctx: ToolContext, name: str) -> Draft:
    """Return the draft of that name, for an operator's own tools. Raises ToolFailed when there is no such draft."""
    kept = ctx.memory.get(PREFIX + name)
    if kept is None:
        others = ", ".join(key.removeprefix(PREFIX) for key in ctx.memory if key.startswith(PREFIX)) or "none"
        raise ToolFailed(f"There is no draft {name!r}, or it was not used for too long; drafts: {others}. Start one.")
    return msgspec.convert(kept, Draft)


def _add_description(kinds: dict[str, ActionKind]) -> str:
    lines = [f"- {kind.type} (ports: {', '.join(kind.ports)}) {kind.description}".rstrip() for kind in kinds.values()]
    return "\n".join(["Add an action to a draft. Types of actions, the first port being the default:", *lines])
