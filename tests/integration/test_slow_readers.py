"""A reader that does not read: the server drops its buffer and sends a snapshot later, and no other reader waits
(PROTOCOL §4)."""

import contextlib
import socket
from http.client import HTTPConnection
from pathlib import Path

import anyio
import anyio.to_thread
import httpx2
import pytest

from tests.support.reader import Watcher, watching
from tests.support.server import Process, command, serving, user_message
from threadcast_protocol.framing.sse import EventFrame, FrameParser

pytestmark = pytest.mark.anyio

LONG = {"model": "demo/essay?words=20000&rate=0"}


@pytest.mark.row("NET-6")
async def test_a_stalled_reader_gets_a_snapshot_and_catches_up_while_others_lose_nothing(
    server: Process, chat_id: str
) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    with socket.socket() as stalled:
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        stalled.connect((host, int(port)))
        connection = HTTPConnection(host, int(port), timeout=10)
        connection.sock = stalled
        connection.request("GET", f"/v1/chats/subscribe?chat_id={chat_id}")
        async with watching(server.url, chat_id) as reader:
            for number in range(8):
                await command(server.url, chat_id, user_message(f"a{number}", "write", params=LONG))
                await reader.at_rest(number + 1)
            assert reader.snapshots == 1, "who reads is never thrown back"
            late = Watcher(chat_id)
            with anyio.fail_after(20):
                await anyio.to_thread.run_sync(_read_until_same, connection, late, reader)
    assert late.snapshots >= 2, "the stalled reader was given a fresh snapshot"
    assert late.snapshot == reader.snapshot
    assert len(late.frames) < len(reader.frames)


def _read_until_same(connection: HTTPConnection, late: Watcher, reader: Watcher) -> None:
    """Continue to read until the stalled reader has the same state as the other reader."""
    answer = connection.getresponse()
    parser = FrameParser()
    while late.last_id.split("-")[:2] != reader.last_id.split("-")[:2]:
        chunk = answer.read1(65_536)
        assert chunk, "the server gave the stalled reader up"
        for frame in parser.feed(chunk):
            if isinstance(frame, EventFrame):
                late.take(frame)


async def test_a_reader_who_takes_no_byte_at_all_is_disconnected(tmp_path: Path) -> None:
    environment = {"THREADCAST_LIMITS__SUBSCRIBER_STALL_SECONDS": "0.5"}
    async with serving(tmp_path, environment=environment) as server:
        host, port = server.url.removeprefix("http://").split(":")
        with socket.socket() as stalled:
            stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            stalled.connect((host, int(port)))
            stalled.sendall(b"GET /v1/chats/subscribe?chat_id=c1 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            async with watching(server.url, "c1") as reader:
                for number in range(8):
                    await command(server.url, "c1", user_message(f"a{number}", "write", params=LONG))
                    await reader.at_rest(number + 1)
            async with httpx2.AsyncClient() as client:
                with anyio.fail_after(30):
                    while (
                        'streams_ended_total{reason="slow"} 1.0' not in (await client.get(f"{server.url}/metrics")).text
                    ):
                        await anyio.sleep(0.05)
            stalled.settimeout(5)
            with contextlib.suppress(ConnectionError):  # an end or a reset; silence would raise TimeoutError
                while stalled.recv(65_536):
                    pass
