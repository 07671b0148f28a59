"""Transcripts of the protocol as data (`*.json`), and a proxy that breaks one thing at a time: they must notice."""
