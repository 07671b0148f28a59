"""Starts one aimock for the whole session, and gives each test its part of aimock's journal and a chat id."""

from collections.abc import Iterator

import pytest

from tests.integration.server_fixtures import chat_id
from tests.peers.aimock import Aimock, serve_aimock

__all__ = ["aimock_server", "chat_id"]


@pytest.fixture(scope="session")
def aimock_server() -> Iterator[Aimock]:
    with serve_aimock() as server:
        yield server


@pytest.fixture
def aimock(aimock_server: Aimock) -> Aimock:
    aimock_server.forget()
    return aimock_server
