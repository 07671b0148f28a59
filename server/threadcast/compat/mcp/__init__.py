"""The door of MCP: this server as an MCP server, for agents and editors that use chats as tools and resources."""
