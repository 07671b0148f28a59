"""Tools, resources and prompts of MCP servers, over the official SDK (extra `mcp`), imported when the first is opened.

`hub.py` is the whole of it to the rest of the house; `connection.py` owns one server's connection, `tool.py` is one of
its tools, `content.py` turns its blocks into what models and messages hold.
"""
