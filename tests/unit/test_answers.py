"""Tests the limit of large answers: which requests wait, which requests are refused, and that the count of answers does
not leak."""

import anyio
import pytest
from starlette.requests import Request

from threadcast.api.answers import LOADED_AT_ONCE, Answers
from threadcast.api.errors import ANSWER_ROOM
from threadcast.base.telemetry import Metrics
from threadcast_protocol.wire.errors import RateLimited

pytestmark = pytest.mark.anyio


def _request(principal_id: str = "ann") -> Request:
    return Request({"type": "http", "state": {"principal_id": principal_id}})


async def test_a_request_is_refused_when_the_others_are_not_read_in_time() -> None:
    answers = Answers(Metrics(), 100, 1_000, wait_seconds=0.01)
    first = _request()
    async with answers.turn(first) as room:
        room.take(150)
    with pytest.raises(RateLimited, match="150 bytes"):
        async with answers.turn(_request()):
            pass
    async with answers.turn(_request("bob")):
        pass
    first.scope[ANSWER_ROOM].give_back()
    async with answers.turn(_request()):
        pass
    assert not answers._accounts


async def test_answers_of_known_size_never_exceed_the_bound_together() -> None:
    answers = Answers(Metrics(), 100, 1_000, wait_seconds=0.01)
    requests = [_request() for _ in range(3)]
    for request in requests[:2]:
        async with answers.turn(request, 50):
            pass
    with pytest.raises(RateLimited):
        async with answers.turn(requests[2], 1):
            pass


async def test_a_single_answer_may_have_any_size() -> None:
    answers = Answers(Metrics(), 100, 1_000, wait_seconds=0.01)
    async with answers.turn(_request(), 500):
        pass


async def test_few_answers_of_a_caller_are_loaded_at_once() -> None:
    answers = Answers(Metrics(), 100, 1_000)
    loading = most = 0

    async def load() -> None:
        nonlocal loading, most
        async with answers.turn(_request()):
            loading += 1
            most = max(most, loading)
            await anyio.lowlevel.checkpoint()
            loading -= 1

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(load)
    assert most == LOADED_AT_ONCE
    assert not answers._accounts


async def test_a_request_that_is_cancelled_while_it_waits_leaves_nothing() -> None:
    answers = Answers(Metrics(), 100, 1_000)
    first = _request()
    async with answers.turn(first, 100):
        pass

    async def ask() -> None:
        async with answers.turn(_request()):
            raise AssertionError("the request must wait")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    first.scope[ANSWER_ROOM].give_back()
    assert not answers._accounts
    async with answers.turn(_request(), 100):
        pass
