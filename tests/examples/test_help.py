"""The example `help`: its page as it stands."""

import shutil
import socket
from pathlib import Path

import pytest

from tests.examples.console import play
from tests.integration.harness import ROOT

pytestmark = pytest.mark.anyio

HELP = ROOT / "examples" / "help"


@pytest.fixture
def library_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


async def test_every_line_of_the_page_is_printed(tmp_path: Path, library_port: int) -> None:
    """In a copy, whose library has a port of its own: 8001 may be taken."""
    here = Path(shutil.copytree(HELP, tmp_path / "help"))
    config = here / "threadcast.toml"
    config.write_text(config.read_text("utf-8").replace(":8001/", f":{library_port}/"), "utf-8")
    page = here / "README.md"
    text = page.read_text("utf-8").replace("examples/help/", f"{here}/")
    page.write_text(text.replace("library.py &", f"library.py {library_port} &"), "utf-8")
    print("\n----\n".join(await play(page, tmp_path)))
