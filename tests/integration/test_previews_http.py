"""Previews over real HTTP and several processes: shown, decided, carried out, and never carried out twice."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from tests.integration.store_fixtures import fresh_url
from tests.support.fleet import FAST, Fleet, running_fleet
from tests.support.reader import Watcher, watching
from tests.support.server import DEADLINE_SECONDS, command, user_message
from threadcast.store.embedded.server_process import ServerProcess
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio

MODEL = {"model": "demo/tools?rate=0"}
WAIT = {"Prefer": "wait=5"}
TOOLS = str(Path(__file__).with_name("preview_tools.py"))


@pytest.fixture
async def fleet(valkey_server: ServerProcess, tmp_path: Path) -> AsyncIterator[Fleet]:
    """A web process and a worker over one store."""
    config = tmp_path / "threadcast.toml"
    config.write_text('[profiles.agent]\npayloads = ["article"]\n')
    options = ("--config", str(config), "--app", TOOLS)
    with running_fleet(tmp_path, fresh_url(valkey_server), *options, limits=FAST) as opened:
        await opened.open(1)
        yield opened


def saved(fleet: Fleet) -> list[str]:
    """Return the content that the commit tool has saved."""
    files = list(fleet.data.rglob("articles.txt"))
    return files[0].read_text().splitlines() if files else []


async def propose(fleet: Fleet, tab: Watcher, arguments: str) -> JsonObject:
    """Ask for a preview, wait until the run has ended, and return the frame that showed the preview."""
    await command(fleet.url, tab.chat_id, user_message("a", f"call propose_article {arguments}", params=MODEL))
    await tab.at_rest()
    (shown,) = [frame for frame in tab.frames if frame["type"] == "payload_added"]
    return shown


def decision(payload_id: object, accepted: bool = True, **more: object) -> JsonObject:
    request_id = f"d-{accepted}-{len(more)}"
    return {
        "type": "tool_decision",
        "client_request_id": request_id,
        "payload_id": payload_id,
        "accepted": accepted,
        **more,
    }


async def approved(tab: Watcher, approval: str) -> None:
    await tab.until(lambda w: any(f.get("approval") == approval for f in w.frames))


@pytest.mark.row("GATE-3", "GATE-4", "GATE-5")
async def test_a_preview_is_shown_decided_and_carried_out_once(fleet: Fleet) -> None:
    async with watching(fleet.url, "c1") as tab:
        shown = await propose(fleet, tab, '{"title":"Tides","object_id":"a-1"}')
        assert (shown["source"], shown["approval"], shown["summary"]) == ("preview", "pending", "Tides")
        assert shown["data"]["is_update"] is True and shown["data"]["object_id"] == "a-1"
        assert saved(fleet) == []
        async with watching(fleet.url, "c1") as late:
            assert late.state is not None
            (waiting,) = late.state.payloads
        assert waiting.approval == "pending", "it waits in every snapshot"
        bound = decision(shown["payload_id"], input_hash=shown["input_hash"])
        first = await command(fleet.url, "c1", bound, WAIT)
        assert first.json()["accepted"] is True
        second = await command(fleet.url, "c1", decision(shown["payload_id"], False), WAIT)
        assert (second.json()["accepted"], second.json()["result"]["code"]) == (False, "no_pending_decision")
        await approved(tab, "committed")
        await tab.at_rest(2)
    assert [line.split(" ", 1)[1] for line in saved(fleet)] == ["Tides"]
    approvals = [frame["approval"] for frame in tab.frames if frame["type"].startswith("payload_")]
    assert approvals == ["pending", "accepted", "committed"]


@pytest.mark.row("GATE-4", "GATE-5")
async def test_a_rejected_preview_saves_nothing_and_bad_ones_are_not_shown(fleet: Fleet) -> None:
    async with watching(fleet.url, "c1") as tab:
        shown = await propose(fleet, tab, '{"title":"Tides"}')
        assert "object_id" not in shown["data"]
        await command(fleet.url, "c1", decision(shown["payload_id"], False, note="no"), WAIT)
        await approved(tab, "rejected")
    async with watching(fleet.url, "c2") as tab:
        (shown,) = [await propose(fleet, tab, '{"title":"bad"}')]
        assert (shown["payload_type"], shown.get("approval")) == ("article_validation_error", None)
    async with watching(fleet.url, "c3") as tab:
        long = "x" * 81
        await command(fleet.url, "c3", user_message("a", f'call propose_article {{"title":"{long}"}}', params=MODEL))
        await tab.at_rest()
        assert "payload_added" not in tab.types()
        assert any(role == "tool" and "/title" in content for role, content in tab.messages)
    assert saved(fleet) == []


@pytest.mark.row("GATE-5")
async def test_a_commit_tool_whose_worker_is_killed_is_not_run_again(fleet: Fleet) -> None:
    async with watching(fleet.url, "c1") as tab:
        shown = await propose(fleet, tab, '{"title":"Tides","seconds":60}')
        await command(fleet.url, "c1", decision(shown["payload_id"]), WAIT)
        call_id = f"commit-{shown['payload_id']}"
        await tab.until(
            lambda w: any((f.get("tool_call_id"), f.get("message")) == (call_id, "written") for f in w.frames)
        )
        fleet.workers[0].kill()
        await fleet.add_worker()
        await approved(tab, "outcome_unknown")
        await tab.at_rest(2)
        await command(fleet.url, "c1", user_message("b", "and now?", params={"model": "demo/echo?rate=0"}))
        await tab.at_rest(3)
    statuses = [frame["status"] for frame in tab.frames if frame.get("tool_call_id") == call_id]
    assert [status for status in statuses if status != "progress"] == ["running", "outcome_unknown"]
    assert len(saved(fleet)) == 1


@pytest.mark.row("PAY-3")
async def test_a_payload_in_a_models_text_becomes_one_and_leaves_the_text(fleet: Fleet) -> None:
    text = 'Look.\nARTICLE: {"title": "Tides {1}"}\nThere.'
    async with watching(fleet.url, "c1") as tab:
        await command(fleet.url, "c1", user_message("a", text, params={"model": "demo/echo?rate=0"}))
        await tab.at_rest()
        (shown,) = [frame for frame in tab.frames if frame["type"] == "payload_added"]
        assert (shown["source"], shown["data"], shown["summary"]) == ("llm", {"title": "Tides {1}"}, "Tides {1}")
        async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client:
            chat = (await client.get(f"{fleet.url}/v1/chats/c1")).json()
    answer = chat["messages"][-1]
    assert "ARTICLE" not in answer["content"] and answer["active_payload_id"] == shown["payload_id"]
