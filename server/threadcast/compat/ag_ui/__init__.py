"""AG-UI 1.0, the Agent User Interaction Protocol (ag-ui.com/spec/1.0), on the chats of this server."""
