"""An MCP server with one tool."""

from mcp.server.mcpserver import MCPServer

server = MCPServer("sums")


@server.tool()
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return f"sum {a + b}"


if __name__ == "__main__":
    server.run("stdio")
