"""Offers the tools, resources and prompts of MCP servers, over the official SDK (extra `mcp`), which is imported with
the first connection.

Other packages use `hub.py` only; `connection.py` owns one server's connection, `tool.py` is one of its tools,
`content.py` converts its content blocks into text and attachments.
"""
