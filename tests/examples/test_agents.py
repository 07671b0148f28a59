"""Runs the pages of the example `agents` unchanged."""

from pathlib import Path

import pytest

from tests.examples.console import play
from tests.support.server import ROOT

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "remote_ag_ui.md",
        "coding_acp.md",
        "durable.md",
        "langgraph_trip.md",
        "openai_agents.md",
        "pydantic_ai.md",
    ],
)
async def test_every_line_of_the_page_is_printed(page: str, tmp_path: Path) -> None:
    await play(ROOT / "examples" / "agents" / page, tmp_path)
