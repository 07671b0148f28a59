"""Tests the TypeScript client and the parts of the page that need no browser, with node's test runner and a real
server."""
