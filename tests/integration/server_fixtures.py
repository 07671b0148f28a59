"""The server that most integration tests share, started as a user does; each test uses chats of its own."""

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx2
import pytest

from tests.support.server import DEADLINE_SECONDS, Process, started_server

__all__ = ["chat_id", "client", "server"]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """Run `threadcast serve` with the embedded store and the demo models, which answer quickly."""
    base = tmp_path_factory.mktemp("server")
    with started_server(base, is_durable=True, app=Path(__file__).with_name("misbehaving_tools.py")) as process:
        yield process.wait_ready()


@pytest.fixture
def chat_id() -> str:
    return f"chat-{uuid.uuid4().hex[:12]}"


@pytest.fixture
async def client(server: Process) -> AsyncIterator[httpx2.AsyncClient]:
    """An HTTP client of the server."""
    async with httpx2.AsyncClient(base_url=server.url, timeout=DEADLINE_SECONDS) as client:
        yield client
