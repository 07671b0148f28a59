"""Simulates a reader who goes through a page from top to bottom in a clone, and pastes each block where it belongs.

    toml      goes to the end of threadcast.toml; a server must start with the block alone, and with all of them
    python    that only defines things goes to the end of my_tools.py, likewise; else it is a program and must end well
    ts        is compiled and run by node
    js        is a script of a web page; node reads it and does not run it
    sh        is run command by command; commands that do not end have a terminal of their own for the rest of the page
    text      after one of the others in the same section is what was printed: each line must have come, in this order,
              in one of the terminals. `…` stands for anything, and so does each number of ten digits or more
    nginx, caddyfile  are run by tests/security/test_real_proxies.py
    (others)  are an error: for a new kind of block, write a function that runs it

The clone is a directory of links to this clone, so that its scripts run unchanged, with a separate data directory and
configuration. Three addresses of the pages are replaced by free ports: the server's, the store's and a local model's. A
server is started when a block first needs one, and again when the configuration or the tools changed.
"""

import ast
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import anyio

from tests.docs.pages import EXCUSED, ROOT, Block, commands_of
from tests.support.server import DEADLINE_SECONDS
from tests.web.installed import WEB, node_is_missing
from threadcast.settings.sources import BadSettings, load_settings
from threadcast.wiring.components import build_components

__all__ = ["PAGE_URL", "SMALLER", "Reader", "Terminal", "reading"]

PAGE_URL = "http://127.0.0.1:8000"
CONFIG, TOOLS = "threadcast.toml", "my_tools.py"
_SERVER = re.compile(r"(\w+=\S+ )*(\./scripts/run|\.venv/bin/threadcast (serve|web|worker))\b")
_ENDLESS = re.compile(r"curl -N \S+/(subscribe|feed)\b|npx vite$|\.venv/bin/threadcast tail ")
_NEEDS_SERVER = re.compile(rf"{PAGE_URL}|threadcast (chat|tail)")
SMALLER = {"--seeds 20000": "--seeds 20", "--seeds 2000": "--seeds 20", "--seconds 45": "--seconds 1 --examples 1"}
"""Maps numbers in the pages' commands, which make a command take a minute or more, to smaller numbers for the test."""

COMMAND_SECONDS = 2 * DEADLINE_SECONDS
"""Maximum seconds of a command that ends by itself; the longest commands take some 10 s on a quiet machine."""

CALLED_ELSEWHERE = {"client.md": "tests/examples/test_client_page.py calls each of its functions"}
"""Maps each page whose programs may consist of definitions alone to the reason."""


class Terminal:
    """One command in its own shell, and its output."""

    def __init__(self, command: str, here: Path, environment: Mapping[str, str]) -> None:
        self.command = command
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._popen = subprocess.Popen(
            ["sh", "-c", command],
            cwd=here,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._reading = threading.Thread(target=self._read)
        self._has_ended = False
        self._reading.start()

    def _read(self) -> None:
        assert self._popen.stdout is not None
        with self._popen.stdout as printed:
            for line in printed:
                with self._changed:
                    self.lines.append(line.decode().rstrip("\n"))
                    self._changed.notify_all()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def until(self, is_so: Callable[[list[str]], bool]) -> None:
        """Wait until the printed lines satisfy the condition. Raises AssertionError when the command ends before, or
        the deadline passes."""
        with self._changed:
            came = self._changed.wait_for(lambda: self._has_ended or is_so(self.lines), DEADLINE_SECONDS)
            assert came and is_so(self.lines), f"$ {self.command}\n{self.shown()}"

    def ended(self) -> int:
        """Wait for the command's end and return its exit status. Raises AssertionError when it does not end in time."""
        try:
            status = self._popen.wait(COMMAND_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"$ {self.command}\ngoes on after {COMMAND_SECONDS:g} s:\n{self.shown()}") from None
        self._reading.join(DEADLINE_SECONDS)  # all of its output has been read
        return status

    def shown(self) -> str:
        return "\n".join(self.lines[-60:])

    def close(self) -> None:
        """End the command as a terminal does when it closes."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._popen.pid, number)
                self._popen.wait(DEADLINE_SECONDS / 2)
            except ProcessLookupError:
                break
            except subprocess.TimeoutExpired:
                continue
        self._popen.wait(DEADLINE_SECONDS)
        self._reading.join(DEADLINE_SECONDS)


def _is_program(code: str) -> bool:
    """Return whether a block is a program; a file of tools contains definitions alone."""
    return any(isinstance(part, ast.Expr | ast.For | ast.With | ast.If) for part in ast.parse(code).body)


def _a_clone(here: Path) -> Path:
    """Create a directory that looks like a fresh clone with an installed environment: it has links, and an up-to-date
    stamp."""
    here.mkdir()
    for entry in ROOT.iterdir():
        if not entry.name.startswith(".") and entry.name != CONFIG:
            (here / entry.name).symlink_to(entry)
    (here / ".venv").mkdir()
    for entry in Path(sys.prefix).iterdir():
        if entry.name != "stamp":
            (here / ".venv" / entry.name).symlink_to(entry)
    source = subprocess.run(
        ["sh", "-c", ". scripts/environment; installed_from", ROOT / "scripts" / "run"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    (here / ".venv" / "stamp").write_text(f"{source.stdout.strip()} test\n")
    return here


class Reader:
    """`addresses` maps each address in a page to the real address, including the server's."""

    def __init__(self, here: Path, addresses: Mapping[str, str], programs: Path) -> None:
        self.here = _a_clone(here)
        self._addresses = addresses
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "THREADCAST_", "REDIS_"))}
        port = addresses[PAGE_URL].rpartition(":")[2]
        self._environment = {
            **clean,
            "THREADCAST_SERVER__PORT": port,
            "THREADCAST_PAGE": "skip",  # otherwise scripts/run would build the page, which other tests do
            "PYTHONUNBUFFERED": "1",
            "CURL_HOME": str(programs),
            "PATH": f"{programs}:{os.environ['PATH']}",
        }
        self.missing: set[str] = set()
        self._terminals: list[Terminal] = []
        self._servers: list[Terminal] = []
        self._is_stale = False
        self._last: Block | None = None

    def paste(self, block: Block) -> None:
        """Use a block as a reader would. Raises AssertionError when the block does not work."""
        follows = self._last is not None and self._last.section == block.section
        match block.language:
            case "toml":
                self._configure(block)
            case "python" if block.page.name not in CALLED_ELSEWHERE and not _is_program(block.text):
                self._offer_tools(block)
            case "python":
                self._run_program(block)
            case "ts":
                self._run_typescript(block)
            case "js":
                self._read_script(block)
            case "sh":
                self._run_commands(block)
            case "nginx" | "caddyfile":
                return  # tests/security/test_real_proxies.py runs the real proxies with them
            case "text":
                if follows:
                    self._expect(block)
                return
            case language:
                raise AssertionError(f"{block}: nobody runs blocks of {language!r}; see tests/docs/reader.py")
        self._last = block

    def finish(self) -> None:
        """Finish the page: start a server with all of its configuration and tools, if none has started yet."""
        if self._is_stale:
            self._need_server()

    def close(self) -> None:
        for terminal in self._terminals:
            terminal.close()

    def _really(self, text: str) -> str:
        for written, real in {**self._addresses, **SMALLER}.items():
            text = text.replace(written, real)
        return text

    def _open(self, command: str, here: Path | None = None) -> Terminal:
        terminal = Terminal(self._really(command), here or self.here, self._environment)
        self._terminals.append(terminal)
        return terminal

    def _configure(self, block: Block) -> None:
        alone = self.here / f"alone-{block.line}.toml"
        alone.write_text(self._really(block.text))
        _check(block, {}, alone)
        with (self.here / CONFIG).open("a") as file:
            file.write(f"\n{alone.read_text()}")
        self._is_stale = True

    def _offer_tools(self, block: Block) -> None:
        alone = self.here / f"tools_{block.line}.py"
        alone.write_text(block.text)
        _check(block, {"server.app": str(alone)}, Path(os.devnull))
        with (self.here / TOOLS).open("a") as file:
            file.write(f"\n{block.text}")
        self._is_stale = True

    def _need_server(self) -> None:
        """Start a server if none runs; ignore a server that the page has started with further environment variables."""
        if not self._servers or self._is_stale or "=" in self._servers[-1].command:
            self._start_server("./scripts/run" + (f" --app {TOOLS}" if (self.here / TOOLS).exists() else ""))

    def _start_server(self, command: str) -> None:
        """Start a process. A server replaces the server that has the port; a worker joins the running web processes."""
        if " worker" not in command:
            while self._servers:
                self._servers.pop().close()
        self._is_stale = False
        self._servers.append(self._open(command))
        self._servers[-1].until(_is_up)

    def _run_program(self, block: Block) -> None:
        self._need_server()
        file = self.here / f"program_{block.line}.py"
        file.write_text(self._really(block.text))
        self._ends_well(block, f".venv/bin/python {file.name}")

    def _run_typescript(self, block: Block) -> None:
        if missing := node_is_missing():
            self.missing.add(missing)
            return
        self._need_server()
        program = self.here / f"program_{block.line}"
        program.mkdir()
        (program / "package.json").write_text('{"type": "module"}')
        (program / "node_modules").mkdir()
        (program / "node_modules" / "threadcast-client").symlink_to(WEB / "client")
        (program / "page.ts").write_text(self._really(block.text))
        options = f"--strict --target ES2022 --module NodeNext --typeRoots {WEB}/node_modules/@types --types node"
        self._ends_well(block, f"{WEB}/node_modules/.bin/tsc {options} page.ts", program)
        self._ends_well(block, "node page.js", program)

    def _read_script(self, block: Block) -> None:
        if missing := node_is_missing():
            self.missing.add(missing)
            return
        script = self.here / f"script_{block.line}.mjs"
        script.write_text(block.text)
        self._ends_well(block, f"node --check {script.name}")

    def _run_commands(self, block: Block) -> None:
        exported = ""
        for command in commands_of(block.text):
            if command in EXCUSED:
                continue
            if command.startswith("export "):
                exported += f"{command}; "
                continue
            if "npx" in command and (missing := node_is_missing()):
                self.missing.add(missing)
                continue
            if _SERVER.match(command):
                self._start_server(exported + command)
                continue
            if _NEEDS_SERVER.search(command):
                self._need_server()
            if _ENDLESS.search(command):
                self._open(exported + command).until(bool)
            else:
                self._ends_well(block, exported + command)

    def _ends_well(self, block: Block, command: str, here: Path | None = None) -> None:
        terminal = self._open(command, here)
        status = terminal.ended()
        assert status == 0, f"{block}\n$ {command}\nends with {status}:\n{terminal.shown()}"

    def _expect(self, block: Block) -> None:
        wanted = [_pattern(self._really(line)) for line in block.text.splitlines() if line.strip()]
        if any(_has_all(terminal.lines, wanted) for terminal in self._terminals):
            return
        newest = self._terminals[-1]
        try:
            going_on = next(terminal for terminal in reversed(self._terminals) if _ENDLESS.search(terminal.command))
            going_on.until(lambda lines: _has_all(lines, wanted))
        except (StopIteration, AssertionError):
            shown = f"{newest.command}\n{newest.shown()}"
            raise AssertionError(f"{block}\n{block.text}\nwas not printed; the newest is\n$ {shown}") from None


def _check(block: Block, flags: Mapping[str, object], config: Path) -> None:
    """Check the configuration and tools as the server does at its start, without opening a socket or a store."""

    async def put_together() -> None:
        components = build_components(load_settings({}, flags, str(config)).settings)
        await components.providers.aclose()
        await components.http.aclose()

    try:
        anyio.run(put_together)
    except (BadSettings, ValueError) as wrong:
        raise AssertionError(f"{block}, pasted alone, starts no server:\n{wrong}") from None


def _is_up(lines: list[str]) -> bool:
    return any("listens on" in line or "ready" in line for line in lines)


def _pattern(line: str) -> re.Pattern[str]:
    parts = re.split(r"\s*…\s*|\d{10,}", line.rstrip())
    return re.compile(".*".join(r"\s+".join(map(re.escape, re.split(r"\s+", part))) for part in parts))


def _has_all(lines: list[str], wanted: list[re.Pattern[str]]) -> bool:
    left = iter(lines)
    return all(any(pattern.fullmatch(line.rstrip()) for line in left) for pattern in wanted)


@contextmanager
def reading(here: Path, addresses: Mapping[str, str], programs: Path) -> Iterator[Reader]:
    """Yield a reader for a page. `programs` becomes the first directory of the PATH."""
    reader = Reader(here, addresses, programs)
    try:
        yield reader
    finally:
        reader.close()
