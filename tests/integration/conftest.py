"""The stores of `store_fixtures.py` and the server of `server_fixtures.py`, for every integration test."""

from tests.integration.fake_openai import fake, fake_server
from tests.integration.server_fixtures import chat_id, client, server
from tests.integration.store_fixtures import cluster_nodes, redis7_server, store, valkey_server, valkey_store

__all__ = [
    "chat_id",
    "client",
    "cluster_nodes",
    "fake",
    "fake_server",
    "redis7_server",
    "server",
    "store",
    "valkey_server",
    "valkey_store",
]
