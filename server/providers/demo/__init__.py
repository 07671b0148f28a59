"""Providers that ask nobody: small built-in models, and scripts that people write."""
