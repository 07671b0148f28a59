"""Plans tool calls and processes their results: policies, arguments, previews, and the tools' memory."""
