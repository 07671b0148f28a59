"""Pages of AG-UI whose connection is cut, or whose worker dies, in the middle of an answer."""

from pathlib import Path

import anyio
import pytest

from tests.doors.dagui.agent import opened_agent, runs_in, user
from tests.integration.oneshot_client import prepare
from tests.support.fleet import FAST, fleet_on_new_store
from tests.support.server import DEADLINE_SECONDS, serving
from tests.torture.proxy import Proxy

pytestmark = pytest.mark.anyio


@pytest.mark.row("DOOR-4")
async def test_after_a_cut_the_page_joins_and_has_every_word_once(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        port = int(server.url.rpartition(":")[2])
        await prepare(server, "c", "demo/essay?words=80&rate=100")
        async with (
            Proxy("page > server", target=("127.0.0.1", port)) as proxy,
            opened_agent(f"http://127.0.0.1:{proxy.port}", "c") as page,
            opened_agent(server.url, "c") as other,
        ):
            await page.tell("run", message=user("x"))
            await page.until(lambda line: line.get("event") == "TEXT_MESSAGE_CONTENT")
            proxy.reset()
            assert (await page.until(lambda line: line.get("done")))["error"]
            await page.tell("forget")
            assert await page.run() is None
            shown = await page.shown()
            assert await other.run() is None
            assert await other.messages() == shown["messages"]
    (run,) = runs_in(shown["events"])
    assert [event["type"] for event in run[:2]] == ["RUN_STARTED", "MESSAGES_SNAPSHOT"]
    assert len(shown["messages"]) == 2 and len(shown["messages"][1]["content"].split()) == 80


async def test_an_answer_goes_on_when_its_worker_is_killed(tmp_path: Path) -> None:
    with fleet_on_new_store(tmp_path, limits=FAST) as fleet:
        await fleet.open()
        async with opened_agent(fleet.url, "killed", mode="/agent") as page:
            await prepare(fleet.webs[0], "killed", "demo/essay?words=200&rate=100")
            await page.tell("run", message=user("x"))
            await page.until(lambda line: line.get("event") == "TEXT_MESSAGE_CONTENT")
            with anyio.fail_after(DEADLINE_SECONDS):
                while not fleet.kill_owner("killed"):
                    await anyio.sleep(0.01)
            assert (await page.until(lambda line: line.get("done")))["error"] is None
            shown = await page.shown()
        async with opened_agent(fleet.url, "killed") as other:
            assert await other.run() is None
            assert await other.messages() == shown["messages"]
    assert len(runs_in(shown["events"])) == 1
    assert len(shown["messages"]) == 2 and len(shown["messages"][1]["content"].split()) == 200
