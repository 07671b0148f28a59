"""Tests which files `threadcast init` writes and which files it keeps, and that a server runs with the files."""

import tomllib
from pathlib import Path

import anyio
import pytest

from tests.support.server import DEADLINE_SECONDS, ROOT, start
from threadcast.cli import main
from threadcast.console.init import CONFIG, TOOLS
from threadcast.settings.sources import load_settings
from threadcast_client import Chat, Client

pytestmark = pytest.mark.anyio

EXAMPLE = ROOT / "threadcast.example.toml"
TOOL_MODEL = {"model": "demo/tools"}


def test_the_configuration_is_the_example_with_the_tools_named(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path)]) == 0
    written, example = ((path.read_text("utf-8").splitlines()) for path in (tmp_path / CONFIG, EXAMPLE))
    assert len(written) == len(example)
    assert [new for new, old in zip(written, example, strict=True) if new != old] == [
        'app = "tools.py"                # a Python file whose tools are offered to models'
    ]
    assert tomllib.loads("\n".join(written))["server"] == {"app": TOOLS}
    values = load_settings({}, file=str(tmp_path / CONFIG)).values()
    assert [value.path for value in values] == ["server.app"]


def test_files_that_exist_are_kept_and_the_command_to_start_names_the_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(CONFIG).write_text("# mine\n")
    assert main(["init"]) == 0
    assert Path(CONFIG).read_text() == "# mine\n" and Path(TOOLS).is_file()
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "kept      threadcast.toml (the file exists already and was not changed)"
    assert said[1] == "written   tools.py" and said[-1].endswith(": threadcast serve --app tools.py")

    Path(TOOLS).write_text("# mine, too\n")
    assert main(["init"]) == 0
    assert Path(TOOLS).read_text() == "# mine, too\n"


def test_a_directory_that_cannot_be_made_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["init", str(tmp_path / "file" / "directory")]) == 1
    said = capsys.readouterr()
    assert (
        said.out == ""
        and said.err == f"threadcast: {tmp_path / 'file' / 'directory'}: Not a directory; name another directory\n"
    )


def results(chat: Chat) -> list[str]:
    """Return the results of the tools that were called."""
    return [str(message.content) for message in chat.messages if message.role == "tool"]


@pytest.mark.parametrize("flag", ["--config", "--app"])
async def test_a_server_offers_the_first_tools(tmp_path: Path, flag: str) -> None:
    made = tmp_path / "made"
    assert main(["init", str(made)]) == 0
    file = made / (CONFIG if flag == "--config" else TOOLS)
    arguments = ["serve", "--port", "0", "--memory", "--data-dir", str(tmp_path / "data"), flag, str(file)]
    with start(*arguments, log=tmp_path / "log") as process:
        await process.ready()
        async with Client(process.url) as client, client.chat("first") as chat:
            with anyio.fail_after(DEADLINE_SECONDS):
                await chat.ask('call count_words {"text": "one two three"}', params=TOOL_MODEL)
                assert results(chat) == ["3"]
                answer = chat.ask('call add_note {"note": "milk"}', params=TOOL_MODEL)
                await chat.until(lambda state: chat.questions)
                (question,) = chat.questions
                await chat.decide(question.tool_call_id, accepted=True)
                await answer
        assert results(chat)[-1].endswith("notes.txt.")
