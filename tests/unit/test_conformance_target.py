"""The conformance client repeats only one kind of request: a stream that the server asks it to open later."""

import httpx2
import pytest

from threadcast.console.conformance.target import OPENINGS_MAX, RETRY_MAX_SECONDS, Target

pytestmark = pytest.mark.anyio

TOO_FAST = {"Retry-After": "0"}


def answering(*answers: httpx2.Response) -> tuple[Target, list[httpx2.Request]]:
    """Return a client and the list of its requests; the requests get these answers, and then the last answer for
    ever."""
    asked: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return answers[min(len(asked), len(answers)) - 1]

    return Target("http://127.0.0.1:9", transport=httpx2.MockTransport(answer)), asked


async def test_a_stream_that_is_opened_too_fast_is_opened_again_when_the_server_says() -> None:
    target, asked = answering(httpx2.Response(429, headers=TOO_FAST), httpx2.Response(200))
    async with target, target.subscribe("c1", last_event_id="7") as response:
        assert response.status_code == 200
    assert [request.headers["Last-Event-ID"] for request in asked] == ["7", "7"]


@pytest.mark.parametrize(
    ("method", "headers", "times"),
    [
        ("GET", TOO_FAST, OPENINGS_MAX),
        ("GET", {}, 1),
        ("GET", {"Retry-After": f"{RETRY_MAX_SECONDS + 1:.0f}"}, 1),
        ("POST", TOO_FAST, 1),
    ],
)
async def test_a_refusal_is_shown_when_it_stays_or_names_no_near_time_or_answers_a_command(
    method: str, headers: dict[str, str], times: int
) -> None:
    target, asked = answering(httpx2.Response(429, headers=headers))
    async with target, target.stream(method, "/v1/chats/subscribe") as response:
        assert response.status_code == 429
    assert len(asked) == times
