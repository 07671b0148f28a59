"""Attacks over real sockets: one file per class of attack. docs/security.md has the table of threats."""
