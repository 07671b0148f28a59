"""Providers without a server: small built-in models, and scripts in a file."""
