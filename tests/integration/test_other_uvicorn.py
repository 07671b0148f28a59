"""If uvicorn's internals differ from those that the server uses, the server reports that and answers through plain
ASGI.

Each test alters a copy of the installed uvicorn and starts a server that imports the copy.
"""

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from tests.support.server import DEADLINE_SECONDS, serving
from threadcast_client import Client

pytestmark = pytest.mark.anyio

PROTOCOL = "protocols/http/httptools_impl.py"


def rename(old: str) -> Callable[[Path], None]:
    """Return a change that gives an attribute another name, throughout the protocol."""

    def alter(uvicorn: Path) -> None:
        file = uvicorn / PROTOCOL
        text = file.read_text("utf-8")
        assert old in text
        file.write_text(text.replace(old, f"another_{old}"))

    return alter


def remove(uvicorn: Path) -> None:
    (uvicorn / PROTOCOL).unlink()
    auto = uvicorn / "protocols/http/auto.py"
    auto.write_text("from uvicorn.protocols.http.h11_impl import H11Protocol as AutoHTTPProtocol\n")


@pytest.mark.parametrize(
    ("alter", "missing"),
    [
        pytest.param(lambda _: None, "", id="as it is"),
        pytest.param(rename("chunked_encoding"), "its RequestResponseCycle has no chunked_encoding", id="attribute"),
        pytest.param(rename("RequestResponseCycle"), "it has no RequestResponseCycle", id="class"),
        pytest.param(remove, "it has no uvicorn.protocols.http.httptools_impl", id="module"),
    ],
)
async def test_a_server_says_what_differs_and_streams_all_the_same(
    tmp_path: Path, alter: Callable[[Path], None], missing: str
) -> None:
    spec = importlib.util.find_spec("uvicorn")
    assert spec is not None and spec.origin is not None
    alter(Path(shutil.copytree(Path(spec.origin).parent, tmp_path / "path" / "uvicorn")))
    async with serving(tmp_path, environment={"PYTHONPATH": str(tmp_path / "path")}) as process:
        async with Client(process.url) as client, client.chat("first") as chat:
            with anyio.fail_after(DEADLINE_SECONDS):
                assert await chat.ask("hello") == "You said: hello"
        assert await process.stop() == 0
        said = [line for line in process.log_text().splitlines() if "uvicorn.advice" in line]
    if not missing:
        assert said == []
        return
    (line,) = said
    assert f"{missing}. Events go through plain ASGI" in line
    assert "Traceback" not in process.log_text()
