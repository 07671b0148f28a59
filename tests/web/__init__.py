"""The TypeScript client and the page, tested against the real server: by node's own test runner, and in a browser."""
