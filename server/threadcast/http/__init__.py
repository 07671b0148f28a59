"""HTTP below the application: sockets, uvicorn, direct writes and probes."""
