"""Calls of MCP clients whose worker dies in the middle of an answer, and answers that reach another process."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.doors.dmcp.clients import Mode, opened_client
from tests.integration.oneshot_client import prepare
from tests.support.fleet import FAST, fleet_on_new_store
from tests.support.server import DEADLINE_SECONDS

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_an_answer_goes_on_when_its_worker_is_killed(tmp_path: Path, mode: Mode) -> None:
    heard: list[str] = []
    begun = anyio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message or "")
        begun.set()

    with fleet_on_new_store(tmp_path, limits=FAST) as fleet:
        await fleet.open()
        await prepare(fleet.webs[0], "killed", "demo/essay?words=200&rate=100")
        told: Any = None
        async with opened_client(fleet.url, mode) as client, anyio.create_task_group() as tasks:

            async def ask() -> None:
                nonlocal told
                asked = {"text": "x", "chat_id": "killed"}
                told = (await client.call_tool("ask", asked, progress_callback=on_progress)).structured_content

            tasks.start_soon(ask)
            await begun.wait()
            with anyio.fail_after(DEADLINE_SECONDS):
                while not fleet.kill_owner("killed"):
                    await anyio.sleep(0.01)
    assert told["state"] == "complete"
    assert len(told["text"].split()) == 200
