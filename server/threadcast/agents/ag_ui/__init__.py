"""Agents that speak AG-UI 1.0, the Agent User Interaction Protocol: a remote agent in any language answers a chat.

Most such agents are configured, not coded (`[agents.NAME]` with `kind = "ag_ui"`). In an operator's file:

    from threadcast.agents.ag_ui import serve

    serve("https://agents.example.com/weather", name="weather")
"""

from importlib.util import find_spec

if find_spec("jsonpatch") is None:
    raise ImportError("agents behind AG-UI need the extra `ag-ui`; install it with `pip install 'threadcast[ag-ui]'`")

from threadcast.agents.ag_ui.serving import serve

__all__ = ["serve"]
