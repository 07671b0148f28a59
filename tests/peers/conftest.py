"""A chat id for each test."""

from tests.integration.server_fixtures import chat_id

__all__ = ["chat_id"]
