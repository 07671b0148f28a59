"""Programs that tools start, and MCP servers over stdio, read neither the server's environment nor its store."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path

import anyio
import pytest

from tests.integration.mcp_harness import answers_in, until_offered
from tests.ports import free_port
from tests.support.reader import watching
from tests.support.server import DEADLINE_SECONDS, Process, command, start, user_message

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="/proc and prctl are Linux's"),
]

IS_ROOT = os.geteuid() == 0
PYTHON = "/usr/bin/python3"
"""An interpreter that every user may run. The interpreter of the tests may be in root's home directory."""

DROP = (
    *("setpriv", "--reuid=12345", "--regid=12345", "--clear-groups"),
    *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"),
)
"""Runs a program without root's rights except to read files."""

SECRET = "planted-key-in-the-environment"
ALLOWED = {"HOME", "LANG", "LC_CTYPE", "LOGNAME", "OWN", "PATH", "SHELL", "TERM", "TMPDIR", "USER"}

APP = '''
import asyncio

from threadcast import tool
from threadcast.tools.context import ToolContext


@tool()
async def run(path: str, ctx: ToolContext) -> str:
    """Run a script for sh and return its output."""
    evil = {"OWN": "of the tool", "LD_PRELOAD": EVIL} if EVIL else {"OWN": "of the tool"}
    started = await ctx.processes.start(["/bin/sh", path], env=evil)
    while ctx.processes.read(started).status == "running":
        await asyncio.sleep(0.02)
    return ctx.processes.read(started).output
'''


@pytest.fixture
def base() -> Iterator[Path]:
    """A directory that every user may enter. Pytest's own temporary directory is open only to the user of the tests."""
    directory = Path(tempfile.mkdtemp(prefix="threadcast-test-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


Serve = Callable[..., AbstractAsyncContextManager[Process]]


@pytest.fixture
def serve(base: Path) -> Serve:
    @asynccontextmanager
    async def serve(environment: Mapping[str, str], evil: str = "") -> AsyncIterator[Process]:
        program = shutil.copy(Path(__file__).with_name("mcp_files.py"), base)
        (base / "app.py").write_text(f"EVIL = {evil!r}\n{APP}")
        (base / "threadcast.toml").write_text(
            f'[models]\ndefault = "demo/tools"\n[mcp.files]\ncommand = "{PYTHON}"\nargs = ["{program}", "/dev/null"]\n'
            'policy = "auto"\nenv = { OWN = "of the server" }\n'
        )
        arguments = ["--config", str(base / "threadcast.toml"), "--data-dir", str(base / "data")]
        arguments = ["serve", "--port", "0", "--app", str(base / "app.py"), *arguments]
        with start(*arguments, log=base / "log", environment={"PLANTED": SECRET, **environment}) as server:
            await server.ready()
            await until_offered(server, "mcp__files__read_file")
            yield server

    return serve


async def ask_tool(server: Process, tool: str, **arguments: str) -> str:
    chat_id = f"c-{os.urandom(8).hex()}"
    async with watching(server.url, chat_id) as watcher:
        await command(server.url, chat_id, user_message("a", f"call {tool} {json.dumps(arguments)}"))
        await watcher.at_rest()
        text, _ = answers_in(watcher)[0]  # the end of a background process may add another message
        return text


async def script(server: Process, base: Path, *lines: str) -> str:
    """Return the output of a script that a tool runs in the background."""
    path = base / f"{os.urandom(8).hex()}.sh"
    path.write_text("\n".join(lines))
    return await ask_tool(server, "run", path=str(path))


def family(pid: int) -> list[int]:
    """Return the process, its children and their children, without the programs that tools run."""
    found = [pid]
    for each in found:
        for task in Path(f"/proc/{each}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    names = {each: Path(f"/proc/{each}/cmdline").read_bytes() for each in found}
    return [each for each in found if b"mcp_files.py" not in names[each]]


@pytest.mark.skipif(not IS_ROOT, reason="only root starts programs as other users")
@pytest.mark.parametrize("user", ["", "daemon"])
async def test_as_root_programs_run_as_another_user_and_reach_neither_environment_nor_store(
    serve: Serve, base: Path, user: str
) -> None:
    async with serve({"THREADCAST_SERVER__PROGRAMS_USER": user}) as server:
        socket_file = (base / "data/store/socket").read_text().strip()
        seen = json.loads(await ask_tool(server, "mcp__files__variables"))
        assert seen["uid"] not in (0, os.getuid()) and seen["groups"] == []
        assert set(seen["environment"]) <= ALLOWED and seen["environment"]["OWN"] == "of the server"
        pids = family(server.pid)
        assert len(pids) > 1, "the server and its store"
        for pid in pids:
            for name in ("environ", "mem", "maps", "fd/0", "root/etc/hostname"):
                text = await ask_tool(server, "mcp__files__read_file", path=f"/proc/{pid}/{name}")
                assert text.startswith(("PermissionError", "FileNotFoundError")), (name, text[:80])
        for path in (base / "data/store", Path(socket_file).parent):
            assert "PermissionError" in await ask_tool(server, "mcp__files__list_directory", path=str(path))
        assert "PermissionError" in await ask_tool(server, "mcp__files__connect", path=socket_file)
        denied = await ask_tool(server, "mcp__files__write_file", path=str(base / "note"))
        assert denied.startswith("PermissionError")
        assert f"as the user {user or 'nobody'}" in denied and "server.programs_user" in denied
        with anyio.fail_after(DEADLINE_SECONDS):
            while "the reason: PermissionError" not in server.log_text():  # the end of a long output
                await anyio.sleep(0.02)
        assert 500 <= server.log_text().count("a frame of the stack") < 600
        home = seen["environment"]["HOME"]
        assert await ask_tool(server, "mcp__files__write_file", path=f"{home}/note") == "written"
        output = await script(
            server,
            base,
            "id -u; id -G; env",
            *(f"cat /proc/{pid}/environ; ls /proc/{pid}/fd" for pid in pids),
            f"ls {base}/data/store; kill -0 {server.pid} && echo killable",
            'for each in /proc/$$/fd/*; do echo "descriptor $(readlink $each)"; done; echo made > made; cat made',
            f"mkdir -p {base}/data/files; ln -s /etc/passwd {base}/data/files/link && echo linked",
            f"touch {base}/data/here && echo linked",
            "grep NoNewPrivs /proc/$$/status",
        )
        uid, gids, *lines = output.splitlines()
        assert (uid, gids) == (str(seen["uid"]), gids) and uid != "0" and "0" not in gids.split()
        assert SECRET not in output and "killable" not in output and "linked" not in output and "REDIS" not in output
        assert "OWN=of the tool" in lines and "made" in lines and "NoNewPrivs:\t1" in lines
        held = {line.partition(" ")[2] for line in lines if line.startswith("descriptor ")}
        pipes = {each for each in held if each.startswith("pipe:")}
        assert len(pipes) == 2, "its output, and that of readlink"
        assert all(each in ("", "/dev/null") or each.endswith(".sh") for each in held - pipes)


@pytest.mark.skipif(not IS_ROOT or shutil.which("cc") is None, reason="needs root and a compiler")
async def test_variables_of_a_program_do_not_act_on_the_process_that_gives_up_roots_rights(
    serve: Serve, base: Path
) -> None:
    """A tool may pass on variables that a model has chosen, such as LD_PRELOAD."""
    source, library, proof = base / "evil.c", base / "evil.so", base / "open" / "proof"
    proof.parent.mkdir()
    proof.parent.chmod(0o777)
    source.write_text(
        "#include <stdio.h>\n#include <unistd.h>\n__attribute__((constructor)) void run(void) {"
        f'FILE *file = fopen("{proof}", "a");'
        'if (file) { fprintf(file, "%d\\n", (int)geteuid()); fclose(file); } }\n'
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    async with serve({"THREADCAST_SERVER__PROGRAMS_USER": ""}, evil=str(library)) as server:
        await script(server, base, "true")
        users = set(proof.read_text().split())
        assert users and "0" not in users


@asynccontextmanager
async def unprivileged(base: Path, environment: Mapping[str, str]) -> AsyncIterator[Process]:
    """Start a server that does not run as root. If the tests run as root, the server runs as a user without rights
    except to read files, since the interpreter may be in root's home directory."""
    process = Process(
        ["serve", "--memory", "--port", "0", "--config", str(base / "threadcast.toml")],
        base / "log",
        environment,
        prefix=DROP if IS_ROOT else (),
    )
    with closing(process):
        yield await process.ready()


@pytest.mark.skipif(IS_ROOT and shutil.which("setpriv") is None, reason="setpriv is not installed")
async def test_without_root_programs_do_not_read_the_servers_environment(base: Path) -> None:
    program = shutil.copy(Path(__file__).with_name("mcp_files.py"), base)
    (base / "threadcast.toml").write_text(
        f'[models]\ndefault = "demo/tools"\n[mcp.files]\ncommand = "{PYTHON}"\nargs = ["{program}", "/dev/null"]\n'
        'policy = "auto"\n'
    )
    environment = {"PLANTED": SECRET, "THREADCAST_SERVER__PROGRAMS_USER": ""}
    async with unprivileged(base, environment) as server:
        await until_offered(server, "mcp__files__read_file")
        seen = json.loads(await ask_tool(server, "mcp__files__variables"))
        assert seen["uid"] != 0 and set(seen["environment"]) <= ALLOWED
        for pid in family(server.pid):
            text = await ask_tool(server, "mcp__files__read_file", path=f"/proc/{pid}/environ")
            assert SECRET not in text
        assert "PermissionError" in await ask_tool(server, "mcp__files__read_file", path=f"/proc/{server.pid}/environ")
        assert "PermissionError" in await ask_tool(server, "mcp__files__read_file", path=f"/proc/{server.pid}/mem")


@pytest.mark.skipif(not IS_ROOT, reason="only root starts programs as other users")
async def test_doctor_and_log_explain_programs_that_their_user_may_not_reach(base: Path) -> None:
    private = base / "private"
    private.mkdir()
    for name, content in (("program", "#!/bin/sh\n"), ("sh", "#!/bin/sh\n"), ("server.py", "print()\n")):
        (private / name).write_text(content)
        (private / name).chmod(0o755)
    private.chmod(0o700)
    servers = {
        "closed": (str(private / "program"), [], "may not run", f"{private}/program could not be started: Permission"),
        "unread": (PYTHON, [str(private / "server.py")], "may not read", "Permission denied"),
        # Another sh in the PATH, which the user may run, must not be started instead.
        "shadowed": ("sh", ["-c", "exit 9"], "may not run", f"{private}/sh could not be started: Permission denied"),
        "absent": ("no-such-program", [], "no such program", "there is no such program in PATH"),
    }
    for server, (program, arguments, _, _) in servers.items():
        with (base / "threadcast.toml").open("a") as config:
            config.write(f'[mcp.{server}]\ncommand = "{program}"\nargs = {json.dumps(arguments)}\n')
    path = f"{private}:{os.environ['PATH']}"
    environment = {"PATH": path, "THREADCAST_SERVER__PROGRAMS_USER": "nobody"}
    arguments = ["--config", str(base / "threadcast.toml")]
    free = {"THREADCAST_SERVER__PORT": str(free_port())}  # a port on which no server answers for its own processes
    run = await anyio.run_process(
        [sys.executable, "-m", "threadcast.cli", "doctor", *arguments],
        env={**os.environ, **environment, **free},
        check=False,
    )
    found = run.stdout.decode()
    for server, (_, _, words, _) in servers.items():
        assert any(f"fail  mcp.{server} " in line and words in line for line in found.splitlines()), found
    with start("serve", "--memory", "--port", "0", *arguments, log=base / "log", environment=environment) as process:
        await process.ready()
        lines = process.log_text().splitlines()
    for server, (_, _, _, words) in servers.items():
        ours = [line for line in lines if f'"server":"{server}"' in line]
        assert any("mcp.stderr" in line and words in line for line in ours), ours
        ends = [line for line in ours if "mcp.down" in line]
        assert all("the program ended with the exit status" in line and '"user":"nobody"' in line for line in ends), (
            ours
        )
        assert ends and not any("exit status 9" in line for line in ends)


async def test_doctor_says_what_programs_of_tools_can_read(base: Path) -> None:
    (base / "threadcast.toml").write_text('[mcp.files]\ncommand = "true"\n')
    environment = {k: v for k, v in os.environ.items() if not k.startswith("THREADCAST_")}
    as_root = (("root", "can read"), ("", "as the user nobody"), ("no-such-user", "there is no user 'no-such-user'"))
    for user, words in as_root if IS_ROOT else (("", "can read"),):
        environment["THREADCAST_SERVER__PROGRAMS_USER"] = user
        run = await anyio.run_process(
            [sys.executable, "-m", "threadcast.cli", "doctor", "--config", str(base / "threadcast.toml")],
            env=environment,
            check=False,
        )
        assert any("programs of tools" in line and words in line for line in run.stdout.decode().splitlines())
