"""The edge of commands over a store that fails at the worst moment: what is kept is said to be kept, nothing more."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import httpx2
import pytest
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from protocol.messages import JsonObject
from protocol.principal import LOCAL
from server.agent.place.profile import Profile, Profiles
from server.api.auth import LocalAuthenticator
from server.api.edge import Edge
from server.api.quotas import Quota, Quotas
from server.api.routes import build_app
from server.providers.demo.models import Demo
from server.providers.registry import Providers
from server.readiness import Readiness
from server.relay.feeds import Feeds
from server.relay.hub import Hub
from server.relay.vault import Vault
from server.tools.mcp.hub import McpHub
from tests.unit.actor_house import CHAT, GatedTool, House, say
from tests.unit.delegating import ALL as DELEGATING
from tests.unit.faulty_store import DEADLINE_SECONDS

pytestmark = pytest.mark.anyio

COMMANDS = f"/v1/chats/{CHAT}/commands"
ABORT: JsonObject = {"type": "abort", "client_request_id": "stop"}
SET: JsonObject = {"type": "set_params", "client_request_id": "set", "patch": {"title": "x"}}
HANG = "demo/hang?after=3&rate=0"
NO_QUOTA = Quota()


@pytest.fixture
def house() -> House:
    return House()


@asynccontextmanager
async def edge(
    house: House, *, body_timeout_seconds: float = 30.0, quota: Quota = NO_QUOTA, vault: Vault | None = None
) -> AsyncIterator[httpx2.AsyncClient]:
    """The web half over the house's store; no worker is at work."""
    async with Hub(house.store, house.metrics).running() as hub, Feeds(house.store).running() as feeds:
        lent = Edge(
            store=house.store,
            hub=hub,
            feeds=feeds,
            auth=LocalAuthenticator(),
            metrics=house.metrics,
            readiness=Readiness(),
            profiles=Profiles({"agent": Profile(name="agent")}, {}, "demo/echo"),
            providers=Providers([Demo()]),
            tools=[],
            mcp=McpHub(),
            quotas=Quotas(house.store, house.metrics, quota, {}),
            body_max_bytes=1_000_000,
            buffer_max_bytes=100_000,
            stall_seconds=60.0,
            body_timeout_seconds=body_timeout_seconds,
            vault=vault,
        )
        transport = httpx2.ASGITransport(build_app(lent, cors_origins=[], checks_host=False))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            with anyio.fail_after(2 * DEADLINE_SECONDS):
                yield client


async def test_of_a_command_that_is_not_kept_no_credentials_are_held(house: House) -> None:
    vault = Vault(house.store)
    async with edge(house, quota=Quota(per_hour=1), vault=vault) as client:
        for request_id, text in (("a", "x"), ("b", "x"), ("a", "other words")):
            body = {"type": "user_message", "client_request_id": request_id, "content": text}
            await client.post(COMMANDS, json=body, headers={"Authorization": f"Basic {request_id}"})
    assert await vault.authorization(LOCAL.id, CHAT, ["b"]) is None, "over quota"
    assert await vault.authorization(LOCAL.id, CHAT, ["a"]) == "Basic a", (
        "the other words were not kept, the first were"
    )


# whose chat it is


@pytest.mark.parametrize("owner", ["somebody", None])
async def test_a_chat_of_somebody_else_is_not_listened_to(house: House, owner: str | None) -> None:
    if owner is not None:
        await house.post(say("mine"), owner=owner)
    async with edge(house) as client:
        aborted = await client.post(COMMANDS, json=ABORT)
        cancelled = await client.delete(f"/v1/chats/{CHAT}/queue/a")
        if owner is not None:
            assert (await client.post(COMMANDS, json=SET)).status_code == 404
            assert house.store.calls["follow"] == 0
    assert (aborted.status_code, aborted.json()) == (200, {"status": "aborted"})
    assert (cancelled.status_code, cancelled.json()["code"]) == (404, "not_found")


@pytest.mark.row("CMD-3", "CMD-4")
@pytest.mark.parametrize("wait", [None, "wait=9"])
async def test_a_command_hears_its_outcome_when_the_chat_is_made_just_before_it_is_laid_down(
    house: House, wait: str | None
) -> None:
    """The order is forced: the edge has found no chat, then another request makes it, then the post is carried out."""
    held = house.store.hold("post")
    answers: list[httpx2.Response] = []
    async with edge(house) as client, house.hosting("w1"), anyio.create_task_group() as tasks:

        async def post() -> None:
            answers.append(await client.post(COMMANDS, json=ABORT, headers={"Prefer": wait} if wait else {}))

        tasks.start_soon(post)
        await held.entered()
        await house.post(say("first", model=HANG))
        held.let_go()
    (answer,) = answers
    assert (answer.status_code, answer.json()["status"]) == (200, "aborted"), answer.text
    assert answer.json()["accepted"] is True


async def test_taking_back_is_told_also_of_a_chat_made_just_before(house: House) -> None:
    held = house.store.hold("post")
    answers: list[httpx2.Response] = []
    async with edge(house) as client, house.hosting("w1"), anyio.create_task_group() as tasks:

        async def cancel() -> None:
            answers.append(await client.delete(f"/v1/chats/{CHAT}/queue/nobody"))

        tasks.start_soon(cancel)
        await held.entered()
        await house.post(say("first", model=HANG))
        held.let_go()
    assert [each.status_code for each in answers] == [404], "it is known that nothing of this id waits"


async def test_a_chat_that_its_first_set_params_makes_is_listened_to(house: House) -> None:
    async with edge(house) as client, house.hosting("w1"):
        answer = await client.post(COMMANDS, json=SET)
    assert (answer.status_code, answer.json()["status"]) == (200, "applied")


# a store that fails on the way


@pytest.mark.parametrize("call", ["meta", "follow", "notice"])
async def test_a_command_whose_effect_cannot_be_watched_is_kept_all_the_same(house: House, call: str) -> None:
    async with edge(house) as client, house.hosting("w1"), house.watching() as watcher:
        await house.post(say("write", model=HANG))
        await watcher.until(lambda w: "stream_delta" in w.types(), DEADLINE_SECONDS)
        house.store.away.add(call)
        answers = [
            await client.post(COMMANDS, json=SET),
            await client.post(COMMANDS, json=ABORT),
            await client.delete(f"/v1/chats/{CHAT}/queue/a"),
        ]
        house.store.away.clear()
        await watcher.at_rest(1, DEADLINE_SECONDS)
    assert [(each.status_code, each.json()) for each in answers] == [(202, {"status": "accepted"})] * 3
    assert watcher.state is not None and watcher.state.thread.title == "x"


async def test_an_outcome_that_was_published_while_the_channel_was_lost_is_found_in_the_log(house: House) -> None:
    answers: list[httpx2.Response] = []
    await house.post(say("first"))
    house.store.loses_publishes = True
    async with edge(house) as client, house.hosting("w1"), anyio.create_task_group() as tasks:

        async def post() -> None:
            answers.append(await client.post(COMMANDS, json=SET))

        tasks.start_soon(post)
        with anyio.fail_after(DEADLINE_SECONDS):
            while (await house.state()).thread.title != "x":
                await anyio.sleep(0.005)
        house.store.interrupt()
    assert [(each.status_code, each.json()["status"]) for each in answers] == [(200, "applied")]


async def test_a_command_that_cannot_be_kept_is_503(house: House) -> None:
    house.store.away.add("post")
    async with edge(house) as client:
        answer = await client.post(COMMANDS, json=SET)
    assert (answer.status_code, answer.json()["status"]) == (503, "unavailable")


@pytest.mark.parametrize("call", ["meta", "post"])
async def test_a_refusal_is_answered_also_while_the_store_is_away(house: House, call: str) -> None:
    await house.post(say("first"))
    house.store.away.add(call)
    bad = {**SET, "patch": {"temperature": 5}}
    async with edge(house) as client:
        answer = await client.post(COMMANDS, json=bad)
    assert (answer.status_code, answer.json()["path"]) == (400, "/patch/temperature")


# a delete that breaks off


@pytest.fixture
def gated() -> GatedTool:
    return GatedTool(retry="safe")


@asynccontextmanager
async def family(gated: GatedTool) -> AsyncIterator[tuple[House, str]]:
    """A chat whose tool waits for another chat, whose tool waits too; and that one's id."""
    house = House(gated, *DELEGATING, model="demo/tools?rate=0")
    await house.post(say(f"call delegate {json.dumps({'prompts': ['call gated {}']})}", "ask"))
    async with house.hosting("w1"):
        await gated.entered()
        (child,) = (await house.state()).private.relations.children
        yield house, child.chat_id


async def test_a_delete_that_cannot_be_told_to_the_parent_deletes_nothing(gated: GatedTool) -> None:
    async with family(gated) as (house, child), edge(house) as client:
        house.store.away.add("post")
        assert (await client.delete(f"/v1/chats/{child}")).status_code == 503
        assert (await client.get(f"/v1/chats/{child}")).status_code == 200
        house.store.away.clear()
        assert (await client.delete(f"/v1/chats/{child}")).status_code == 200
        with anyio.fail_after(DEADLINE_SECONDS):
            while not (await house.state()).is_at_rest:
                await anyio.sleep(0.005)
    assert ("tool", "aborted: The chat was deleted.") in await house.texts()


async def test_a_delete_that_broke_off_is_finished_by_the_next(gated: GatedTool) -> None:
    async with family(gated) as (house, child), edge(house) as client:
        await house.store.delete(CHAT, LOCAL.id, "n")  # and whoever did it looked after nobody else
        assert (await client.get(f"/v1/chats/{child}")).status_code == 200
        assert (await client.delete(f"/v1/chats/{CHAT}")).status_code == 404
        assert (await client.get(f"/v1/chats/{child}")).status_code == 404


# bodies that do not come


async def test_a_body_that_does_not_come_is_given_up_and_its_connection_closed(house: House) -> None:
    async def trickle() -> AsyncIterator[bytes]:
        yield b'{"type":'
        await anyio.sleep_forever()

    async with edge(house, body_timeout_seconds=0.1) as client:
        answer = await client.post(COMMANDS, content=trickle())
    assert (answer.status_code, answer.json()) == (
        400,
        {"detail": "the body did not arrive within 0.1 s", "code": "bad_request"},
    )
    assert answer.headers["connection"] == "close"


async def test_a_large_body_that_keeps_coming_is_waited_for(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.api.edge.BODY_MIN_BYTES_PER_SECOND", 100)
    whole = b'{"type":"set_params","client_request_id":"set","patch":{"title":"' + b"x" * 100 + b'"}}'

    async def slowly() -> AsyncIterator[bytes]:
        yield whole[:50]  # earns half a second
        await anyio.sleep(0.2)
        yield whole[50:]

    async with edge(house, body_timeout_seconds=0.1) as client, house.hosting("w1"):
        assert (await client.post(COMMANDS, content=slowly())).status_code == 200


# what the log says


async def test_every_line_of_a_post_says_whose_command_it_is_and_none_of_the_next_request_does(house: House) -> None:
    await house.post(say("first"))
    house.store.away.add("follow")
    async with edge(house) as client:
        with capture_logs(processors=[merge_contextvars]) as logs:
            await client.post(COMMANDS, json=SET)
            house.store.broken.add("meta")
            await client.post(COMMANDS, json={**SET, "client_request_id": "other", "patch": {"temperature": 5}})
            house.store.broken.clear()
            house.store.load = None  # type: ignore[method-assign, assignment]  # a mistake, so that the next one crashes
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


async def test_a_chat_whose_log_cannot_be_read_is_503_and_the_log_says_why(house: House) -> None:
    await house.writer()
    await house.add_entry(b'[{"type":"of tomorrow"}]')
    async with edge(house) as client:
        for path in (f"/v1/chats/{CHAT}", f"/v1/chats/{CHAT}?view=tree", f"/v1/chats/{CHAT}/export"):
            with capture_logs() as logs:
                answer = await client.get(path)
            assert (answer.status_code, answer.json()["code"]) == (503, "unavailable"), path
            assert [line["event"] for line in logs if line["log_level"] == "error"] == ["chat.unreadable"]
