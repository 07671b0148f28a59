"""Hundreds of new connections at the same moment: a health probe does not wait for the requests of these
connections."""

import os
import select
import signal
import socket
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.server import DEADLINE_SECONDS, Process, serving

pytestmark = [pytest.mark.anyio, pytest.mark.row("SEC-1")]

COUNT = 600
"""The number of connections. Each sends a request that takes the server more than a millisecond."""

TRIES = 3
"""The number of attempts, because on a busy machine the test may be interrupted between the answer and the check of the
other connections."""

REQUEST = b"GET /v1/chats HTTP/1.1\r\nhost: localhost\r\n\r\n"
PROBE = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"


def _connected(server: Process, request: bytes) -> socket.socket:
    at = urlsplit(server.url)
    line = socket.create_connection((str(at.hostname), int(at.port or 0)), DEADLINE_SECONDS)
    line.sendall(request)
    return line


def _answers_before_the_probe(server: Process) -> int:
    with ExitStack() as stack:
        os.kill(server.pid, signal.SIGSTOP)
        try:
            others = [stack.enter_context(_connected(server, REQUEST)) for _ in range(COUNT)]
            probe = stack.enter_context(_connected(server, PROBE))
        finally:
            os.kill(server.pid, signal.SIGCONT)
        assert probe.recv(12) == b"HTTP/1.1 200"
        looking = select.poll()
        for each in others:
            looking.register(each, select.POLLIN)
        answered = len(looking.poll(0))
        for each in others:
            assert each.recv(12) == b"HTTP/1.1 200"
        return answered


async def test_a_probe_is_answered_before_requests_of_connections_that_came_first(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        before = [_answers_before_the_probe(server) for _ in range(TRIES)]
    assert min(before) < COUNT / 2, before
