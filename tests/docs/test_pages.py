"""README.md and docs/*.md: every block of code, configuration and commands works when it is pasted."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import EXCUSED, PAGES, ROOT, blocks_of, commands_of, unfenced_lines
from tests.docs.reader import PAGE_URL, SMALLER, reading
from tests.integration.fake_openai import DONE, STOP, FakeOpenAI, Reply, serve_fake_openai, text
from tests.integration.store_fixtures import valkey_server  # noqa: F401 # a fixture
from tests.ports import free_port
from threadcast.store.embedded.server_process import ServerProcess

NPX = ROOT / ".peers" / "node_modules"
"""Packages that `npx -y` in the pages would fetch from a registry; scripts/peers installs them."""


@pytest.fixture
def model() -> Iterator[FakeOpenAI]:
    with serve_fake_openai() as fake:
        fake.replies = [Reply([text("Hello."), STOP, DONE])] * 20
        yield fake


def programs(here: Path) -> Path:
    """A directory for the PATH. Its `npx -y PACKAGE` runs an installed package instead of fetching it. Its settings for
    curl switch off the progress output, which curl shows when it does not print to a terminal."""
    here.mkdir()
    (here / ".curlrc").write_text("silent\nshow-error\n")
    npx = here / "npx"
    npx.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = -y ] || exec {shutil.which("npx")} "$@"\n'
        f'package={NPX}/$2; shift 2; exec node "$package/dist/index.js" "$@"\n'
    )
    npx.chmod(0o755)
    return here


@pytest.mark.slow(10)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_of_a_page_works_when_it_is_pasted(
    page: Path, model: FakeOpenAI, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    blocks = blocks_of(page)
    whole = "".join(block.text for block in blocks)
    if "curl " in whole and shutil.which("curl") is None:
        pytest.skip("curl is not installed, which the pages use")
    addresses = {PAGE_URL: f"http://127.0.0.1:{free_port()}", "http://127.0.0.1:11434/v1": model.base_url}
    if "redis://127.0.0.1:6379" in whole:
        store: ServerProcess = request.getfixturevalue("valkey_server")
        addresses["redis://127.0.0.1:6379"] = store.url
    with reading(tmp_path / "clone", addresses, programs(tmp_path / "bin")) as reader:
        for block in blocks:
            reader.paste(block)
        reader.finish()
        if reader.missing:
            pytest.skip("; ".join(sorted(reader.missing)))


def test_every_excuse_is_needed() -> None:
    shell = [block for page in PAGES for block in blocks_of(page) if block.language == "sh"]
    commands = [command for block in shell for command in commands_of(block.text)]
    assert set(EXCUSED) <= set(commands)
    assert len(set(EXCUSED)) * 4 < len(commands), "excuses are for the few"
    for written in SMALLER:
        assert any(written in command for command in commands), written


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_stands_between_fences_that_name_its_language(page: Path) -> None:
    """Code outside of fenced blocks would remain untested."""
    assert unfenced_lines(page) == []
    assert all(block.language for block in blocks_of(page))
    assert page.read_text("utf-8").count("```") == 2 * len(blocks_of(page)), "a fence that is no block"


def test_a_block_that_does_not_work_is_noticed(tmp_path: Path) -> None:
    """Breaks each kind of block once, by mistakes that occur in real pages."""
    page = tmp_path / "page.md"
    broken = {
        "toml": "[profiles.desk]\nsystem_promt = 'You help.'\n",
        "python": "import threadcast\nthreadcast.Clint\n",
        "sh": "curl -s --fail http://127.0.0.1:8000/v1/nothing\n",
        "ruby": "puts 1\n",
    }
    addresses = {PAGE_URL: f"http://127.0.0.1:{free_port()}"}
    with reading(tmp_path / "clone", addresses, programs(tmp_path / "bin")) as reader:
        for language, code in broken.items():
            page.write_text(f"# Page\n\n```{language}\n{code}```\n")
            (block,) = blocks_of(page)
            with pytest.raises(AssertionError, match=r"page.md:4"):
                reader.paste(block)
        page.write_text("# Page\n\n```sh\necho one\n```\n\n```text\ntwo\n```\n")
        first, second = blocks_of(page)
        reader.paste(first)
        with pytest.raises(AssertionError, match="was not printed"):
            reader.paste(second)
