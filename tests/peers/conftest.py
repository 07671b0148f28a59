"""One aimock for the whole session; each test looks at its own part of the journal."""

from collections.abc import Iterator

import pytest

from tests.peers.aimock import Aimock, serve_aimock


@pytest.fixture(scope="session")
def aimock_server() -> Iterator[Aimock]:
    with serve_aimock() as server:
        yield server


@pytest.fixture
def aimock(aimock_server: Aimock) -> Aimock:
    aimock_server.forget()
    return aimock_server
