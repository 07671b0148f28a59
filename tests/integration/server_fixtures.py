"""The server that most integration tests share, started as a user does; each test uses chats of its own."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from tests.integration.harness import Process, start

__all__ = ["chat_id", "server"]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """`threadcast serve` with the embedded store and the demo models, fast enough to wait for."""
    base = tmp_path_factory.mktemp("server")
    tools = Path(__file__).with_name("misbehaving_tools.py")
    arguments = ["serve", "--port", "0", "--data-dir", str(base / "data"), "--app", str(tools)]
    with start(*arguments, log=base / "log") as process:
        anyio.run(process.ready)
        yield process


@pytest.fixture
def chat_id() -> str:
    return f"chat-{uuid.uuid4().hex[:12]}"
