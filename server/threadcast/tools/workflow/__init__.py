"""A set of tools for assistants that build workflows: actions joined by edges (TOOL-10, TOOL-11).

An operator's `--app` file passes its kinds of actions to `draft_tools`, which returns four tools:

    from threadcast.tools.workflow import ActionKind, draft_tools

    start_draft, add_action, remove_action, preview_draft = draft_tools([ActionKind("approve", ports=("yes", "no"))])

A person accepts or rejects the preview of `preview_draft`; `draft_tools(…, commit_tool="save_workflow")` names the
operator's tool that saves an accepted workflow.
"""

from threadcast.tools.workflow.drafts import Draft, DraftTools, Workflow, draft_of, draft_tools
from threadcast.tools.workflow.edges import Action, ActionKind, Edge, expand_edges

__all__ = ["Action", "ActionKind", "Draft", "DraftTools", "Edge", "Workflow", "draft_of", "draft_tools", "expand_edges"]
