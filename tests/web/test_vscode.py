"""Tests the example extension for VS Code: built as its README says, with a substitute for the editor's API."""

import json
import os
import queue
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from tests.support.server import DEADLINE_SECONDS, ROOT, start
from tests.web.installed import WEB

EXAMPLE = ROOT / "examples" / "vscode"
CODING = ROOT / "examples" / "coding"
BUILD_SECONDS = 120


@pytest.fixture(scope="module")
def extension(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tools = WEB / "node_modules" / ".bin"
    if shutil.which("node") is None or not (tools / "vite").exists():
        pytest.skip("what builds the extension is not installed; run `scripts/web`")
    out = tmp_path_factory.mktemp("extension")
    build = [str(tools / "vite"), "build", "--outDir", str(out), "--logLevel", "error"]
    for arguments in ([str(tools / "tsc"), "-p", "."], build):
        made = subprocess.run(
            arguments, cwd=EXAMPLE, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False
        )
        assert made.returncode == 0, made.stdout + made.stderr
    return out / "extension.cjs"


class Window:
    """The window of the extension. `shown` has the texts that the window has shown, and `until` waits for a text."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.shown: list[list[str | None]] = []
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def ask(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def until(self, kind: str, text: str) -> None:
        while not any(shown[0] == kind and text in (shown[1] or "") for shown in self.shown):
            try:
                self.shown.append(json.loads(self._lines.get(timeout=DEADLINE_SECONDS)))
            except queue.Empty:
                pytest.fail(f"{kind} {text!r} was not shown, but {self.shown}")
        self.shown.clear()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "project"
    monkeypatch.setenv("CODING_PROJECT", str(directory))
    monkeypatch.setenv("CODING_EDITOR", "off")  # the test plays the editor's part
    return Path(shutil.copytree(CODING / "project", directory))


@contextmanager
def opened(
    extension: Path,
    project: Path,
    tmp_path: Path,
    environment: Mapping[str, str] | None = None,
    *,
    config: Path = CODING / "threadcast.toml",
    app: Path | None = None,
    answers: Sequence[str] = ("Allow", "Deny"),
) -> Iterator[Window]:
    arguments = ["serve", "--port", "0", "--data-dir", str(tmp_path / "data"), "--config", str(config)]
    arguments += ["--app", str(app)] if app is not None else []
    node = ["node", str(Path(__file__).with_name("vscode_window.cjs")), str(extension), str(project)]
    with start(*arguments, log=tmp_path / "log", environment=environment) as server:
        anyio.run(server.ready)
        with subprocess.Popen(
            [*node, server.url, "desk"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "ANSWERS": json.dumps(answers)},
        ) as process:
            try:
                yield Window(process)
                assert process.stdin is not None
                process.stdin.close()
                assert process.wait(DEADLINE_SECONDS) == 0  # the process ends when its input ends
            finally:
                process.kill()


def test_the_extension_opens_and_changes_files_in_its_window_and_asks_its_person(
    extension: Path, project: Path, tmp_path: Path
) -> None:
    with opened(extension, project, tmp_path) as window:
        window.until("status", "idle")
        window.ask("Why is the discount wrong?")
        window.until("output", "> Why is the discount wrong?")
        window.until("output", "takes the percentage itself off the price")
        window.ask("Run cat prices.py")
        window.until("question", 'run_command {"command":"cat prices.py"}')
        window.until("output", "exit code 0")
        window.ask("Run rm prices.py")
        window.until("question", "rm prices.py")
        window.until("output", "It says:")
        assert (project / "prices.py").exists()
        window.ask("Mend it")
        window.until("output", "The tests have completed.")
        assert "cents - cents * percent // 100" in (project / "prices.py").read_text()


def test_a_path_outside_of_the_workspace_is_refused_and_the_model_is_told(
    extension: Path, project: Path, tmp_path: Path
) -> None:
    with opened(extension, project, tmp_path, {"THREADCAST_MODELS__DEFAULT": "demo/tools?rate=0"}) as window:
        window.ask('call open_file {"path":"../../etc/passwd"}')
        window.until("output", "is not in the workspace")


def test_questions_are_answered_in_the_window_also_after_an_answer_that_does_not_fit(
    extension: Path, project: Path, tmp_path: Path
) -> None:
    config = tmp_path / "threadcast.toml"
    config.write_text('[models]\ndefault = "demo/tools?rate=0"\n')
    answers = ["Answer", "long", "Answer", "[1, true]", "Answer", "[1, 2]", "Reject"]
    app = ROOT / "tests" / "integration" / "asking_tools.py"
    with opened(extension, project, tmp_path, config=config, app=app, answers=answers) as window:
        window.until("status", "idle")
        window.ask('call ask {"text":"Which one?","options":["short","long"]}')
        window.until("question", "ask asks: Which one?")
        window.until("output", "the answer is long")
        window.ask("call ask_list")
        window.until("question", "ask_list asks: Which numbers?")
        window.until("error", "True is not of type 'integer'")
        window.until("question", "ask_list asks: Which numbers?")
        window.until("output", "[1, 2]")
        window.ask('call ask {"text":"Well?"}')
        window.until("output", "no answer: rejected")
