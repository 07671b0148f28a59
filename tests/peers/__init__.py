"""Real software of others at the far end: model servers and MCP servers that we did not write."""
