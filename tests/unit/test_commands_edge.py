"""Posting commands while the store fails: an answer reports a command as stored if and only if it is stored."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import httpx2
import pytest
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from tests.unit.actor_harness import CHAT, GatedTool, Harness, say
from tests.unit.delegating import ALL as DELEGATING
from tests.unit.faulty_store import DEADLINE_SECONDS
from threadcast.api.answers import Answers
from threadcast.api.auth import LocalAuthenticator
from threadcast.api.bodies import Bodies
from threadcast.api.edge import Edge
from threadcast.api.quotas import Quota, Quotas
from threadcast.api.storage import StorageBounds
from threadcast.credentials import CredentialCache
from threadcast.fanout.feeds import Feeds
from threadcast.fanout.hub import Hub
from threadcast.http.readiness import Readiness
from threadcast.profiles.profile import Profile, Profiles
from threadcast.providers.demo.models import Demo
from threadcast.providers.registry import Providers
from threadcast.routes import build_app
from threadcast.settings.limits import Limits
from threadcast.tools.mcp.hub import McpHub
from threadcast.wiring.tools import worker_limits_of
from threadcast_protocol.wire.messages import JsonObject
from threadcast_protocol.wire.principal import LOCAL

pytestmark = pytest.mark.anyio

COMMANDS = f"/v1/chats/{CHAT}/commands"
ABORT: JsonObject = {"type": "abort", "client_request_id": "stop"}
SET: JsonObject = {"type": "set_params", "client_request_id": "set", "patch": {"title": "x"}}
HANG = "demo/hang?after=3&rate=0"
NO_QUOTA = Quota()


@asynccontextmanager
async def edge(
    harness: Harness,
    *,
    body_timeout_seconds: float = 30.0,
    quota: Quota = NO_QUOTA,
    credential_cache: CredentialCache | None = None,
) -> AsyncIterator[httpx2.AsyncClient]:
    """Run the web half over the harness's store, without a worker."""
    async with Hub(harness.store, harness.metrics).running() as hub, Feeds(harness.store).running() as feeds:
        lent = Edge(
            store=harness.store,
            hub=hub,
            feeds=feeds,
            auth=LocalAuthenticator(),
            metrics=harness.metrics,
            readiness=Readiness(),
            profiles=Profiles({"agent": Profile(name="agent")}, {}, "demo/echo"),
            providers=Providers([Demo()]),
            worker_limits=worker_limits_of([]),
            mcp=McpHub(),
            quotas=Quotas(harness.store, harness.metrics, quota, {}),
            storage=StorageBounds(harness.store, harness.metrics, 0, 0),
            bodies=Bodies(harness.metrics, 1_000_000, 1_000_000),
            imports=Bodies(harness.metrics, 1_000_000, 1_000_000),
            answers=Answers(harness.metrics, 1_000_000, 1_000_000),
            limits=Limits(body_max_bytes=1_000_000, body_timeout_seconds=body_timeout_seconds),
            credential_cache=credential_cache,
        )
        transport = httpx2.ASGITransport(build_app(lent, cors_origins=[], has_tokens=True))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            with anyio.fail_after(2 * DEADLINE_SECONDS):
                yield client


async def test_of_a_command_that_is_not_kept_no_credentials_are_held(harness: Harness) -> None:
    credential_cache = CredentialCache(harness.store)
    async with edge(harness, quota=Quota(per_hour=1), credential_cache=credential_cache) as client:
        for request_id, text in (("a", "x"), ("b", "x"), ("a", "other words")):
            body = {"type": "user_message", "client_request_id": request_id, "content": text}
            await client.post(COMMANDS, json=body, headers={"Authorization": f"Basic {request_id}"})
    assert await credential_cache.authorization(LOCAL.id, CHAT, ["b"]) is None, "over quota"
    assert await credential_cache.authorization(LOCAL.id, CHAT, ["a"]) == "Basic a", (
        "the other words were not kept, the first were"
    )


# chats of other principals


@pytest.mark.parametrize("owner", ["somebody", None])
async def test_a_chat_of_somebody_else_is_not_listened_to(harness: Harness, owner: str | None) -> None:
    if owner is not None:
        await harness.post(say("mine"), owner=owner)
    async with edge(harness) as client:
        aborted = await client.post(COMMANDS, json=ABORT)
        cancelled = await client.delete(f"/v1/chats/{CHAT}/queue/a")
        if owner is not None:
            taken = await client.post(COMMANDS, json=SET)
            assert (taken.status_code, taken.json()["code"]) == (409, "id_taken")
            assert CHAT not in harness.store.followed
            assert len(harness.store.followed) == 3, "the time must not tell a foreign chat from an unknown one"
    assert (aborted.status_code, aborted.json()) == (200, {"status": "aborted"})
    assert (cancelled.status_code, cancelled.json()["code"]) == (404, "not_found")


@pytest.mark.row("CMD-3", "CMD-4")
@pytest.mark.parametrize(
    ("method", "path", "body", "wait", "told"),
    [
        ("POST", COMMANDS, ABORT, "", (200, "aborted", True)),
        ("POST", COMMANDS, ABORT, "wait=9", (200, "aborted", True)),
        ("DELETE", f"/v1/chats/{CHAT}/queue/nobody", None, "", (404, "not_found", None)),
    ],
    ids=["abort", "abort and wait", "take back"],
)
async def test_a_command_hears_its_outcome_when_the_chat_is_made_just_before_it_is_laid_down(
    harness: Harness, method: str, path: str, body: JsonObject | None, wait: str, told: tuple[object, ...]
) -> None:
    """The order is forced: the edge finds no chat, then another request creates it, then the post is carried out."""
    held = harness.store.hold("post")
    answers: list[httpx2.Response] = []
    async with edge(harness) as client, harness.hosting("w1"), anyio.create_task_group() as tasks:

        async def ask() -> None:
            answers.append(await client.request(method, path, json=body, headers={"Prefer": wait}))

        tasks.start_soon(ask)
        await held.entered()
        await harness.post(say("first", model=HANG))
        held.let_go()
    (answer,) = answers
    assert (answer.status_code, answer.json()["status"], answer.json().get("accepted")) == told, answer.text


async def test_a_chat_that_its_first_set_params_makes_is_listened_to(harness: Harness) -> None:
    async with edge(harness) as client, harness.hosting("w1"):
        answer = await client.post(COMMANDS, json=SET)
    assert (answer.status_code, answer.json()["status"]) == (200, "applied")


# a store that fails during a request


@pytest.mark.parametrize("call", ["meta", "follow", "notice"])
async def test_a_command_whose_effect_cannot_be_watched_is_kept_all_the_same(harness: Harness, call: str) -> None:
    async with edge(harness) as client, harness.hosting("w1"), harness.watching() as watcher:
        await harness.post(say("write", model=HANG))
        await watcher.until(lambda w: "stream_delta" in w.types(), DEADLINE_SECONDS)
        harness.store.away.add(call)
        answers = [
            await client.post(COMMANDS, json=SET),
            await client.post(COMMANDS, json=ABORT),
            await client.delete(f"/v1/chats/{CHAT}/queue/a"),
        ]
        harness.store.away.clear()
        await watcher.at_rest(1, DEADLINE_SECONDS)
    assert [(each.status_code, each.json()) for each in answers] == [(202, {"status": "accepted"})] * 3
    assert watcher.state is not None and watcher.state.thread.title == "x"


async def test_an_outcome_that_was_published_while_the_channel_was_lost_is_found_in_the_log(harness: Harness) -> None:
    answers: list[httpx2.Response] = []
    await harness.post(say("first"))
    harness.store.loses_publishes = True
    async with edge(harness) as client, harness.hosting("w1"), anyio.create_task_group() as tasks:

        async def post() -> None:
            answers.append(await client.post(COMMANDS, json=SET))

        tasks.start_soon(post)
        with anyio.fail_after(DEADLINE_SECONDS):
            while (await harness.state()).thread.title != "x":
                await anyio.sleep(0.005)
        harness.store.interrupt()
    assert [(each.status_code, each.json()["status"]) for each in answers] == [(200, "applied")]


async def test_a_command_that_cannot_be_kept_is_503(harness: Harness) -> None:
    harness.store.away.add("post")
    async with edge(harness) as client:
        answer = await client.post(COMMANDS, json=SET)
    assert (answer.status_code, answer.json()["status"]) == (503, "unavailable")


@pytest.mark.parametrize("call", ["meta", "post"])
async def test_a_refusal_is_answered_also_while_the_store_is_away(harness: Harness, call: str) -> None:
    await harness.post(say("first"))
    harness.store.away.add(call)
    bad = {**SET, "patch": {"temperature": 5}}
    async with edge(harness) as client:
        answer = await client.post(COMMANDS, json=bad)
    assert (answer.status_code, answer.json()["path"]) == (400, "/patch/temperature")


# interrupted deletes


@pytest.fixture
def gated() -> GatedTool:
    return GatedTool(retry="safe")


@asynccontextmanager
async def family(gated: GatedTool) -> AsyncIterator[tuple[Harness, str]]:
    """Yield a chat whose tool waits for a child chat, and the child's id; the child's tool waits too."""
    harness = Harness(gated, *DELEGATING, model="demo/tools?rate=0")
    await harness.post(say(f"call delegate {json.dumps({'prompts': ['call gated {}']})}", "ask"))
    async with harness.hosting("w1"):
        await gated.entered()
        (child,) = (await harness.state()).private.relations.children
        yield harness, child.chat_id


async def test_a_delete_that_cannot_be_told_to_the_parent_deletes_nothing(gated: GatedTool) -> None:
    async with family(gated) as (harness, child), edge(harness) as client:
        harness.store.away.add("post")
        assert (await client.delete(f"/v1/chats/{child}")).status_code == 503
        assert (await client.get(f"/v1/chats/{child}")).status_code == 200
        harness.store.away.clear()
        assert (await client.delete(f"/v1/chats/{child}")).status_code == 200
        with anyio.fail_after(DEADLINE_SECONDS):
            while not (await harness.state()).is_at_rest:
                await anyio.sleep(0.005)
    assert ("tool", "aborted: The chat was deleted.") in await harness.texts()


async def test_a_delete_that_broke_off_is_finished_by_the_next(gated: GatedTool) -> None:
    async with family(gated) as (harness, child), edge(harness) as client:
        await harness.store.delete(CHAT, LOCAL.id, "n")  # like a request that breaks off before it deletes the child
        assert (await client.get(f"/v1/chats/{child}")).status_code == 200
        assert (await client.delete(f"/v1/chats/{CHAT}")).status_code == 404
        assert (await client.get(f"/v1/chats/{child}")).status_code == 404


# bodies that never arrive


async def test_a_body_that_does_not_come_is_given_up_and_its_connection_closed(harness: Harness) -> None:
    async def trickle() -> AsyncIterator[bytes]:
        yield b'{"type":'
        await anyio.sleep_forever()

    async with edge(harness, body_timeout_seconds=0.1) as client:
        answer = await client.post(COMMANDS, content=trickle())
    assert (answer.status_code, answer.json()) == (
        400,
        {"detail": "the body did not arrive within 0.1 s", "code": "bad_request"},
    )
    assert answer.headers["connection"] == "close"


async def test_a_large_body_that_keeps_coming_is_waited_for(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threadcast.api.edge.BODY_MIN_BYTES_PER_SECOND", 100)
    whole = b'{"type":"set_params","client_request_id":"set","patch":{"title":"' + b"x" * 100 + b'"}}'

    async def slowly() -> AsyncIterator[bytes]:
        yield whole[:50]  # 50 bytes allow half a second more
        await anyio.sleep(0.2)
        yield whole[50:]

    async with edge(harness, body_timeout_seconds=0.1) as client, harness.hosting("w1"):
        assert (await client.post(COMMANDS, content=slowly())).status_code == 200


# lines of the log


async def test_every_line_of_a_post_says_whose_command_it_is_and_none_of_the_next_request_does(
    harness: Harness,
) -> None:
    await harness.post(say("first"))
    harness.store.away.add("follow")
    async with edge(harness) as client:
        with capture_logs(processors=[merge_contextvars]) as logs:
            await client.post(COMMANDS, json=SET)
            harness.store.broken.add("meta")
            await client.post(COMMANDS, json={**SET, "client_request_id": "other", "patch": {"temperature": 5}})
            harness.store.broken.clear()
            harness.store.load = None  # type: ignore[method-assign, assignment]  # a mistake, so that the next one crashes
            await client.get(f"/v1/chats/{CHAT}")
    whose = [
        (line["event"], line.get("chat_id"), line.get("client_request_id"), line.get("principal")) for line in logs
    ]
    assert whose == [
        ("outcome.not_followed", CHAT, "set", "local"),
        ("command.accepted", CHAT, "set", "local"),
        ("refusal.not_published", CHAT, "other", "local"),
        ("request.crashed", None, None, None),
    ]


async def test_a_chat_whose_log_cannot_be_read_is_503_and_the_log_says_why(harness: Harness) -> None:
    await harness.writer()
    await harness.add_entry(b'[{"type":"of tomorrow"}]')
    async with edge(harness) as client:
        for path in (f"/v1/chats/{CHAT}", f"/v1/chats/{CHAT}?view=tree", f"/v1/chats/{CHAT}/export"):
            with capture_logs() as logs:
                answer = await client.get(path)
            assert (answer.status_code, answer.json()["code"]) == (503, "unavailable"), path
            assert [line["event"] for line in logs if line["log_level"] == "error"] == ["chat.unreadable"]
