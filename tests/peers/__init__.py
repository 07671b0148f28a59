"""Tests with real software of others: model servers and MCP servers that we did not write."""
