"""A pack of tools for assistants that build workflows: actions joined by edges (TOOL-10, TOOL-11).

An operator's `--app` file imports from here, names its kinds of actions, and has four tools more:

    from server.tools.workflow import ActionKind, draft_tools

    start_draft, add_action, remove_action, preview_draft = draft_tools([ActionKind("approve", ports=("yes", "no"))])

A person decides about what `preview_draft` shows; `draft_tools(…, commit_tool="save_workflow")` names the operator's
tool that saves what was accepted.
"""

from server.tools.workflow.drafts import Draft, DraftTools, Workflow, draft_of, draft_tools
from server.tools.workflow.edges import Action, ActionKind, Edge, expand_edges

__all__ = ["Action", "ActionKind", "Draft", "DraftTools", "Edge", "Workflow", "draft_of", "draft_tools", "expand_edges"]
