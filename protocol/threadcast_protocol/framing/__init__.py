"""The encoding of the protocol: Server-Sent Events, JSON, and the ids of streams."""
