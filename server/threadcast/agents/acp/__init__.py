"""Coding agents that speak ACP, the Agent Client Protocol (version 1): a program on the worker's machine answers a
chat.

Most such agents are configured, not coded (`[agents.NAME]` with `kind = "acp"`). In an operator's file:

    from threadcast.agents.acp import serve

    serve(["my-coder", "--acp"], name="coder", env=["MY_CODER_API_KEY"])
"""

from importlib.util import find_spec

if find_spec("acp") is None:
    raise ImportError("agents behind ACP need the extra `acp`; install it with `pip install 'threadcast[acp]'`")

from threadcast.agents.acp.serving import serve

__all__ = ["serve"]
