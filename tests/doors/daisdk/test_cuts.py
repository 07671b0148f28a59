"""Pages of the AI SDK whose connection is cut, or whose worker dies, in the middle of an answer."""

from pathlib import Path

import anyio
import httpx2
import pytest

from tests.doors.daisdk.page import opened_page, text_in
from tests.integration.oneshot_client import prepare
from tests.support.fleet import FAST, fleet_on_new_store
from tests.support.server import DEADLINE_SECONDS, serving
from tests.torture.proxy import Proxy

pytestmark = pytest.mark.anyio


@pytest.mark.row("DOOR-3")
async def test_after_a_cut_the_page_resumes_and_has_every_word_once(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        port = int(server.url.rpartition(":")[2])
        await prepare(server, "c", "demo/essay?words=80&rate=100")
        async with (
            Proxy("page > server", target=("127.0.0.1", port)) as proxy,
            opened_page(f"http://127.0.0.1:{proxy.port}", "c") as page,
        ):
            await page.tell("send", message={"text": "x"}, wait=True)
            await page.until(lambda line: line.get("length", 0) > 20)
            proxy.reset()
            assert (await page.until(lambda line: line.get("done")))["status"] == "error"
            assert (await page.do("resume"))["error"] is None
            messages = await page.messages()
        async with httpx2.AsyncClient(base_url=server.url, timeout=DEADLINE_SECONDS) as client:
            loaded = (await client.get("/ai-sdk/chat/c")).json()
    assert [text_in(message) for message in messages] == [text_in(message) for message in loaded]
    assert len(messages) == 2 and len(text_in(messages[1]).split()) == 80


async def test_an_answer_goes_on_when_its_worker_is_killed(tmp_path: Path) -> None:
    with fleet_on_new_store(tmp_path, limits=FAST) as fleet:
        await fleet.open()
        async with httpx2.AsyncClient(base_url=fleet.url, timeout=DEADLINE_SECONDS) as client:
            body = {"model": "demo/essay?words=200&rate=100"}
            async with opened_page(fleet.url, "killed", body=body) as page:
                await page.tell("send", message={"text": "x"}, wait=True)
                await page.until(lambda line: line.get("length", 0) > 20)
                with anyio.fail_after(DEADLINE_SECONDS):
                    while not fleet.kill_owner("killed"):
                        await anyio.sleep(0.01)
                assert (await page.until(lambda line: line.get("done")))["status"] == "ready"
                messages = await page.messages()
            loaded = (await client.get("/ai-sdk/chat/killed")).json()
    assert [text_in(message) for message in messages] == [text_in(message) for message in loaded]
    assert len(text_in(messages[1]).split()) == 200
