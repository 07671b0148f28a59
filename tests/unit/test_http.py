"""The listening socket, the process's limits, and the time for which an idle connection is kept."""

import asyncio
import resource
import socket

import anyio
import httpx2
import pytest
from starlette.applications import Starlette
from structlog.testing import capture_logs
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from threadcast.base.telemetry import Metrics
from threadcast.http import server as http
from threadcast.http.admission import Connections
from threadcast.settings.limits import Limits


@pytest.mark.parametrize(
    ("bounds", "wanted", "allowed"),
    [
        ((1_024, 1_048_576), (6_000, 1_048_576), 5_000),
        ((1_024, resource.RLIM_INFINITY), (6_000, resource.RLIM_INFINITY), 5_000),
        ((1_024, 4_096), (4_096, 4_096), 3_096),
        ((8_000, 8_000), None, 5_000),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None, 5_000),
    ],
    ids=["raised", "no hard bound", "as far as may be", "enough already", "no bound"],
)
def test_as_many_files_may_be_open_as_connections_need_and_the_system_allows(
    bounds: tuple[int, int], wanted: tuple[int, int] | None, allowed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: bounds)
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: asked.append(both))
    with capture_logs() as logs:
        assert http.allow_open_files(5_000) == allowed
    assert [(line["event"], line["log_level"]) for line in logs] == [("connections.bounded", "debug")] * (
        allowed < 5_000
    )
    assert asked == ([] if wanted is None else [wanted])


def test_a_system_that_refuses_more_open_files_is_served_with_what_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(kind: int, both: tuple[int, int]) -> None:
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert http.allow_open_files(5_000) == 192, "a quarter is kept for the store, models and tools"


NGINX_SECONDS = 60
"""nginx reuses an upstream connection for this long (`keepalive_timeout` of ngx_http_upstream_module)."""


@pytest.mark.anyio
async def test_a_connection_at_rest_is_closed_by_clients_and_proxies_before_the_server_does() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with (
            http.serving(listener, Starlette(), Connections(Limits(), 10, Metrics())) as server,
            httpx2.AsyncClient() as client,
        ):
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            with anyio.fail_after(30):
                assert (await client.get(url)).status_code == 404
            (connection,) = server.server_state.connections
            assert isinstance(connection, HttpToolsProtocol)
            assert connection.timeout_keep_alive_task is not None
            rests_seconds = connection.timeout_keep_alive_task.when() - asyncio.get_running_loop().time()
            assert rests_seconds > NGINX_SECONDS


@pytest.mark.anyio
async def test_a_request_that_arrives_just_after_its_process_began_to_close_is_answered() -> None:
    """The connection was accepted earlier; closing it would fail a client that another process could have served."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        where = listener.getsockname()
        async with http.serving(listener, Starlette(), Connections(Limits(), 10, Metrics())) as server:
            with anyio.fail_after(30):
                async with await anyio.connect_tcp(*where) as client:
                    while not server.server_state.connections:
                        await anyio.sleep(0.01)
                    server.close_soon()
                    while server.servers[0].is_serving():
                        await anyio.sleep(0.01)
                    await anyio.sleep(0.05)  # a process that does not wait would exit sooner
                    await client.send(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
                    assert (await client.receive()).startswith(b"HTTP/1.1 404")
