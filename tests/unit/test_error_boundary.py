"""The error boundary: an exception before the first byte becomes an answer; after the first byte no second answer is
sent."""

import asyncio
import json
from typing import Any

import pytest
import structlog.testing
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from threadcast.api.errors import ErrorBoundary, tell_started
from threadcast.base.telemetry import Metrics
from threadcast.http.readiness import Readiness
from threadcast.routes import no_route
from threadcast_protocol.wire.errors import NotFound, Unavailable

pytestmark = pytest.mark.anyio

STREAM = "/v1/chats/subscribe"


class Client:
    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.metrics = Metrics()

    async def ask(self, raises: BaseException, path: str, *, is_started: bool) -> None:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if is_started:
                if path == STREAM:
                    tell_started(scope, 200)
                await send({"type": "http.response.start", "status": 200, "headers": []})
            raise raises

        async def receive() -> Message:
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            self.sent.append(message)

        # Any: ASGI's own type
        scope: dict[str, Any] = {"type": "http", "method": "GET", "path": path, "headers": [], "app": Starlette()}
        boundary = ErrorBoundary(app, self.metrics.http_requests, Readiness(), no_route=no_route)
        await boundary(scope, receive, send)

    @property
    def statuses(self) -> list[int]:
        return [message["status"] for message in self.sent if message["type"] == "http.response.start"]

    def counted(self, status: int) -> float | None:
        labels = {"route": "nonetype", "status": str(status)}
        return self.metrics.registry.get_sample_value("threadcast_http_requests_total", labels)


async def test_a_client_that_leaves_in_the_middle_of_its_body_is_no_crash() -> None:
    client = Client()
    with structlog.testing.capture_logs() as lines:
        await client.ask(ClientDisconnect(), "/v1/chats", is_started=False)
    assert client.sent == []
    assert [(line["event"], line["log_level"]) for line in lines] == [("request.left", "info")]


@pytest.mark.parametrize("path", [STREAM, "/v1/chats"])
@pytest.mark.parametrize("error", [RuntimeError("x"), NotFound("x"), ExceptionGroup("x", [Unavailable("x")])])
async def test_what_fails_after_the_first_byte_starts_no_second_answer_and_was_counted(
    path: str, error: Exception
) -> None:
    client = Client()
    with pytest.raises(type(error)):
        await client.ask(error, path, is_started=True)
    assert client.statuses == [200]
    assert client.counted(200) == 1


@pytest.mark.row("ERR-5")
@pytest.mark.parametrize("path", [STREAM, "/v1/chats"])
@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (NotFound("x"), 404, "not_found"),
        (ExceptionGroup("x", [ExceptionGroup("y", [Unavailable("x")])]), 503, "unavailable"),
        (ExceptionGroup("x", [Unavailable("x"), RuntimeError("x")]), 500, "internal"),
        (RuntimeError("x"), 500, "internal"),
    ],
)
async def test_what_fails_before_the_first_byte_is_an_answer_also_when_a_task_group_wrapped_it(
    path: str, error: Exception, status: int, code: str
) -> None:
    client = Client()
    await client.ask(error, path, is_started=False)
    assert client.statuses == [status]
    assert json.loads(client.sent[-1]["body"])["code"] == code
    assert client.counted(status) == 1


@pytest.mark.parametrize("path", [STREAM, "/v1/chats"])
async def test_a_request_that_a_stopping_server_gives_up_is_answered_503_and_may_be_asked_again(path: str) -> None:
    client = Client()
    await client.ask(asyncio.CancelledError(), path, is_started=False)
    assert client.statuses == [503]
    assert (b"retry-after", b"1") in client.sent[0]["headers"]
    with pytest.raises(asyncio.CancelledError):
        await client.ask(asyncio.CancelledError(), path, is_started=True)


@pytest.mark.parametrize(("status", "answered"), [(400, 400), (401, 404), (404, 404), (405, 405), (418, 418)])
async def test_errors_of_starlette_are_answered_in_our_form(status: int, answered: int) -> None:
    client = Client()
    await client.ask(HTTPException(status, "short and stout", {"X-Own": "kept"}), "/pages/x", is_started=False)
    assert client.statuses == [answered]
    assert client.counted(answered) == 1
    assert (b"x-own", b"kept") in client.sent[0]["headers"]
    told = json.loads(client.sent[1]["body"])
    assert set(told) == {"detail", "code"}
    assert (told["detail"] == "short and stout") is (status in (400, 418))


async def test_an_error_of_starlette_after_the_first_byte_is_logged() -> None:
    client = Client()
    with structlog.testing.capture_logs() as lines, pytest.raises(HTTPException):
        await client.ask(HTTPException(404), "/pages/x", is_started=True)
    assert client.statuses == [200]
    assert [line["event"] for line in lines] == ["request.crashed"]
