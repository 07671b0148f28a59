"""The stores of `store_fixtures.py`, for every integration test."""

from tests.integration.store_fixtures import redis7_server, store, valkey_server, valkey_store

__all__ = ["redis7_server", "store", "valkey_server", "valkey_store"]
