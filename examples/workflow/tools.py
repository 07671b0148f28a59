"""The tools of an assistant that builds workflows: they read workflows and reports, make drafts, and propose changes.

Three details are worth a look.

A proposal (`propose_workflow`) saves nothing; only a person's decision runs `save_workflow`, never a model. The model
writes edges as `after: "Name:port"`, which are expanded here. `report_columns` takes an id; if the model writes a name,
a resolver finds the id. The records are invented. In your program, replace the accesses to REPORTS and WORKFLOWS by
calls of your API.
"""

from typing import Annotated, TypedDict
from uuid import uuid4

import msgspec

from threadcast import (
    JsonObject,
    Preview,
    Progress,
    ToolContext,
    ToolFailed,
    Traits,
    resolver,
    schema_of,
    tool,
)
from threadcast.tools.workflow import Action, ActionKind, Edge, draft_tools, expand_edges


class Workflow(msgspec.Struct):
    """A workflow as the editor shows it: actions, and the edges between them."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=80)]
    actions: list[Action]
    edges: list[Edge]


class Report(TypedDict):
    id: str
    name: str
    owner: str
    columns: list[str]
    rows_count: int


KINDS = [
    ActionKind("schedule", description="a trigger: begins every day, week or month"),
    ActionKind("run_report", description="runs a report"),
    ActionKind("condition", ports=("yes", "no"), description="asks about the rows of a report"),
    ActionKind("send_mail", description="sends a mail"),
]
KIND_OF = {kind.type: kind for kind in KINDS}

REPORTS: list[Report] = [
    {
        "id": "5d0c7a9e-2f41-4c7b-9a55-1c8f0e6b7a01",
        "name": "Weekly report",
        "owner": "Mara",
        "columns": ["region", "orders", "revenue"],
        "rows_count": 412,
    },
    {
        "id": "8b1f3c64-90aa-4b0e-8f0d-6f2d9c3e5b02",
        "name": "Stock levels",
        "owner": "Jonas",
        "columns": ["item", "warehouse", "left"],
        "rows_count": 9_051,
    },
]

OPEN_ID = "3f2a6b1c-7d58-4e0f-b1a2-94c0d7e8f903"
_ACTIONS = [
    Action("Every Monday", "schedule", parameters={"every": "week", "on": "Monday"}),
    Action("Tell Mara", "send_mail", after="Every Monday", parameters={"to": "mara@example.com"}),
]
WORKFLOWS = {OPEN_ID: Workflow("Monday mail", _ACTIONS, expand_edges(_ACTIONS, KIND_OF))}

start_draft, add_action, remove_action, preview_draft = draft_tools(KINDS, commit_tool="save_workflow")

ActionsArgument = Annotated[list[Action], "in their order; `after` is 'Name' or 'Name:port', and empty for the trigger"]


@tool(retry="safe")
def read_workflow(workflow_id: str) -> Workflow:
    """Read a workflow with all its actions and edges."""
    return _existing(workflow_id)


@tool(retry="safe")
def list_reports() -> list[Report]:
    """List the reports that workflows can run."""
    return REPORTS


async def _report_id(name: str, ctx: ToolContext) -> str:
    ctx.report(Progress(message=f"looking for {name!r}"))  # called once for each name; results are kept
    return next((report["id"] for report in REPORTS if report["name"].lower() == name.lower()), "")


@tool(retry="safe", traits=Traits(resolvers={"report_id": resolver(_report_id, discovery="list_reports")}))
def report_columns(report_id: Annotated[str, "a report's id or its name"]) -> list[str]:
    """Columns of a report, which conditions can ask about."""
    columns = next((report["columns"] for report in REPORTS if report["id"] == report_id), None)
    if columns is None:
        raise ToolFailed(f"There is no report {report_id!r}. Call list_reports to see what there is.")
    return columns


@tool(policy="preview", traits=Traits(commit_tool="save_workflow"))
def propose_workflow(name: str, actions: ActionsArgument, workflow_id: str = "") -> Preview:
    """Propose a workflow, or a change of the one that is open. Nothing is saved until the person accepts."""
    return _proposal(name, actions, workflow_id)


@tool(retry="idempotent", traits=Traits(preview_type="workflow", preview_schema=schema_of(Workflow)))
def save_workflow(name: str, actions: list[Action], edges: list[Edge], object_id: str | None = None) -> str:
    """Save a workflow."""
    saved_id = object_id or str(uuid4())
    WORKFLOWS[saved_id] = Workflow(name, actions, edges)
    return f"Saved {name!r} as {saved_id}."


def _proposal(name: str, actions: list[Action], workflow_id: str) -> Preview:
    """Raises ToolFailed, so that no proposal is shown, if the workflow does not exist or its actions are not
    connected."""
    now = _existing(workflow_id) if workflow_id else None
    what = f"Change {now.name!r}" if now else f"New workflow {name!r}"
    proposed: JsonObject = msgspec.to_builtins(Workflow(name, actions, expand_edges(actions, KIND_OF)))
    before: JsonObject | None = msgspec.to_builtins(now) if now else None
    return Preview(f"{what}: {len(actions)} actions", proposed, workflow_id or None, before)


def _existing(workflow_id: str) -> Workflow:
    try:
        return WORKFLOWS[workflow_id]
    except KeyError:
        raise ToolFailed(f"There is no workflow {workflow_id!r}; is one open in the editor?") from None
