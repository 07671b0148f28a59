"""The draft pack as an operator offers it: one line in the file of tools."""

from server.tools.workflow import ActionKind, draft_tools

start_draft, add_action, remove_action, preview_draft = draft_tools([ActionKind("mail"), ActionKind("wait")])
