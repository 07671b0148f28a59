"""The command `threadcast`: parses the arguments and calls the subcommand.

The subcommands are in `console/`. Each subcommand imports its modules when it is called, so that `--help` is fast. Exit
codes: 0 for success, 1 for a failure, 2 for wrong arguments, 130 for an interrupted command.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from threadcast.console import help_texts, refuse

__all__ = ["main"]


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"threadcast {version('threadcast')}")
        parser.exit()


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line. Returns the exit code."""
    options = _parser().parse_args(argv)
    if sys.platform == "win32":
        return refuse(
            "the server and its terminal run on Linux and macOS; on Windows run them in a container or under WSL. "
            "Client programs run everywhere: pip install threadcast-client",
            2,
        )
    # With `--processes`, the supervisor starts each of its processes with this command line.
    again = sys.orig_argv[1:] if argv is None else ["-m", "threadcast.cli", *argv]
    try:
        return _run(options, [sys.executable, *again])
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `threadcast tail … | head`: the reader has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # otherwise Python reports an error at exit
        return 0


def _run(options: argparse.Namespace, command: list[str]) -> int:
    match options.command:
        case "token":
            import msgspec

            from threadcast.console.token import token
            from threadcast_protocol.wire.errors import explain

            try:
                return token(options.id, [word for word in options.permissions.split(",") if word])
            except msgspec.ValidationError as wrong:
                return refuse(f"ID {options.id!r}, --permissions {options.permissions!r}: {explain(wrong)[0]}", 2)
        case "init":
            from pathlib import Path

            from threadcast.console.init import init

            return init(Path(options.directory))
        case "dev":
            from threadcast.console.dev import dev

            return dev(options.file, _without(command, options.file))
        case "serve" | "web" | "worker":
            from threadcast.base.hiding import hide_process
            from threadcast.http.imports import begin_startup_imports

            hide_process()  # called before the imports, which take most of the startup time
            begin_startup_imports()
            from threadcast.console import serving
            from threadcast.settings.sources import BadSettings

            flags = {path: getattr(options, path, None) for path in _PATHS}
            try:
                if options.command == "serve":
                    return serving.serve(flags, options.config)
                many = serving.Many(options.processes, options.seat, command)
                return serving.half(options.command, flags, options.config, many)
            except BadSettings as wrong:
                return refuse(str(wrong), 2)
        case "doctor":
            from threadcast.console.doctor import doctor

            if options.url and not options.url.startswith(("http://", "https://")):
                return refuse(f"--url {options.url!r} must begin with http:// or https://", 2)
            if options.repair:
                from threadcast.console.doctor_repair import repair

                return repair(os.environ, options.config, data_dir=options.data_dir)
            return doctor(os.environ, options.config, url=options.url, data_dir=options.data_dir)
        case "dead-letters":
            from threadcast.console.dead_letters import dead_letters

            return dead_letters(
                os.environ, options.config, as_json=options.json, limit=options.limit, data_dir=options.data_dir
            )
        case "conformance":
            return _run_conformance(options)
    return _run_client(options)


def _without(command: list[str], file: str) -> list[str]:
    """Return the options of `threadcast dev` in `command`, without the file."""
    options = command[command.index("dev") + 1 :]
    options.remove(file)
    return options


def _run_conformance(options: argparse.Namespace) -> int:
    from pathlib import Path

    from threadcast.console.conformance.report import Wanted, conformance

    if not options.url.startswith(("http://", "https://")):
        return refuse(f"URL {options.url!r} must begin with http:// or https://", 2)
    models = dict(pair.partition("=")[::2] for pair in options.model)
    if not all(models.values()):
        return refuse("--model must be NAME=THEIRS, such as demo/echo=test/parrot", 2)
    if options.at_once < 1 or not options.wait > 0 or not options.limit > 0:
        return refuse("--at-once, --wait and --limit must be greater than 0", 2)
    mode, _, played = (options.mode or "").partition("=")
    return conformance(
        Wanted(
            url=options.url,
            token=options.token or os.environ.get("THREADCAST_TOKEN"),
            only=options.only,
            models=models,
            mode=mode,
            plays=played.split(",") if played else ["demo/echo"],
            directory=Path(options.transcripts) if options.transcripts else None,
            at_once=options.at_once,
            wait_seconds=options.wait,
            limit_seconds=options.limit,
            as_json=options.json,
            lists=options.list,
        )
    )


def _run_client(options: argparse.Namespace) -> int:
    from threadcast.settings.sources import BadSettings
    from threadcast_protocol.wire.errors import BadRequest
    from threadcast_protocol.wire.ids import check_chat_id

    try:
        chat_id = check_chat_id(options.id) if getattr(options, "id", None) else None
        url = options.url or os.environ.get("THREADCAST_URL") or _configured_url()
    except (BadRequest, BadSettings) as wrong:
        return refuse(str(wrong), 2)
    if not url.startswith(("http://", "https://")):
        return refuse(f"--url {url!r} must begin with http:// or https://", 2)
    token = os.environ.get("THREADCAST_TOKEN")
    if options.command == "mcp":
        from threadcast.console.mcp import mcp

        return mcp(url, token)
    if options.command == "approve":
        from threadcast.console.approve import approve

        return approve(url, token, options.id)
    if options.command == "tail":
        from threadcast.console.tail import tail

        return tail(url, token, options.id, last_event_id=options.last_event_id, is_raw=options.raw)
    from threadcast.console.chat import chat, new_chat_id

    if options.new and chat_id:
        return refuse("--new creates an id by itself; leave out the id", 2)
    return chat(url, token, chat_id or new_chat_id(), options.model)


def _configured_url() -> str:
    from threadcast.console.doctor import local_url
    from threadcast.settings.sources import load_settings

    return local_url(load_settings(os.environ).settings)


_PATHS = (
    "server.host",
    "server.port",
    "server.app",
    "server.log_format",
    "store.data_dir",
    "store.memory",
    "models.default",
)
"""Paths of the settings that flags override. Each flag is stored under the path of its setting."""


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="threadcast",
        description="A chat server for LLM agents. Clients send typed commands, each chat has one sequenced log, and "
        "every tab shows the same answer.",
        epilog=help_texts.EXAMPLES,
        formatter_class=raw,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, short: str, description: str | None = None) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=short, description=description or short, formatter_class=raw)

    serve = command("serve", "run everything in one process", help_texts.SERVE)
    dev = command("dev", "run everything, and start again when a file changes", help_texts.DEV)
    dev.add_argument("file", metavar="FILE.py", help="Python file with your agents and tools")
    init = command("init", "write threadcast.toml and a first tools.py", help_texts.INIT)
    init.add_argument("directory", nargs="?", default=".", metavar="DIR", help="directory to write to (this one)")
    web = command("web", "run the half that serves HTTP (needs REDIS_URL)", help_texts.WEB)
    worker = command("worker", "run the half that runs the chats (needs REDIS_URL)", help_texts.WORKER)
    for listening in (serve, dev, web):
        listening.add_argument("--host", dest="server.host", metavar="ADDRESS", help="address to listen on (127.0.0.1)")
        listening.add_argument("--port", dest="server.port", metavar="PORT", type=int, help="port to listen on (8000)")
    for many in (web, worker):
        many.add_argument("--processes", type=int, default=1, metavar="N", help="number of processes to start (1)")
        many.add_argument("--seat", help=argparse.SUPPRESS)  # the supervisor passes a value to each of its processes
    for whole in (serve, dev):
        whole.add_argument(
            "--memory", dest="store.memory", action="store_true", default=None, help="keep all data in memory only"
        )
    config = "configuration file (threadcast.toml, if it exists)"
    data_dir = "directory of the server's data (.threadcast)"
    for serving in (serve, dev, web, worker):
        serving.add_argument("--data-dir", dest="store.data_dir", metavar="DIR", help=data_dir)
        serving.add_argument("--config", metavar="FILE", help=config)
        if serving is not dev:
            serving.add_argument(
                "--app", dest="server.app", metavar="FILE.py", help="Python file with agents and tools"
            )
        serving.add_argument(
            "--model", dest="models.default", metavar="NAME", help="default model of chats, as provider/model"
        )
        serving.add_argument(
            "--log-format",
            dest="server.log_format",
            choices=("auto", "json", "pretty"),
            help="auto: pretty on a terminal, else json",
        )

    url = "the server's address (THREADCAST_URL, or the address in threadcast.toml); the token is THREADCAST_TOKEN"
    chat = command("chat", "talk in the terminal", help_texts.CHAT)
    chat.add_argument("id", nargs="?", metavar="ID", help="the chat; without an id, a new chat")
    chat.add_argument("--new", action="store_true", help="begin a new chat, as without ID")
    chat.add_argument("--model", metavar="NAME", help="set the chat's model, as provider/model")
    chat.add_argument("--url", help=url)

    approve = command("approve", "decide about another caller's tool calls", help_texts.APPROVE)
    approve.add_argument("id", metavar="ID", help="the chat whose calls wait for you")
    approve.add_argument("--url", help=url)

    tail = command("tail", "print a chat's events as they arrive", help_texts.TAIL)
    tail.add_argument("id", metavar="ID", help="the chat")
    tail.add_argument("--from", dest="last_event_id", metavar="EVENT_ID", help="resume after this event id")
    tail.add_argument("--raw", action="store_true", help="print the bytes of one connection unchanged")
    tail.add_argument("--url", help=url)

    mcp = command("mcp", "be an MCP server over stdio, in front of a running server", help_texts.MCP)
    mcp.add_argument("--url", help=url)

    play = command("conformance", "check that a server keeps the protocol", help_texts.CONFORMANCE)
    play.add_argument("url", metavar="URL", nargs="?", default="http://127.0.0.1:8000", help="http://127.0.0.1:8000")
    play.add_argument(
        "--only", nargs="+", default=[], metavar="NAME", help="play these transcripts; * matches anything"
    )
    play.add_argument("--list", action="store_true", help="print the names and subjects of transcripts; play none")
    play.add_argument("--token", help="bearer token (THREADCAST_TOKEN) with the permissions approve and diagnostics")
    play.add_argument(
        "--model", action="append", default=[], metavar="NAME=THEIRS", help="play with the model THEIRS instead of NAME"
    )
    play.add_argument(
        "--mode",
        metavar="NAME[=MODEL,...]",
        help="play in the profile NAME, whose agent behaves like these models (demo/echo); skip what needs others",
    )
    play.add_argument("--transcripts", metavar="DIR", help="play the transcripts in this directory instead")
    play.add_argument("--at-once", type=int, default=6, metavar="N", help="number of transcripts played together (6)")
    play.add_argument("--wait", type=float, default=5, metavar="SECONDS", help="time limit of each expected event (5)")
    play.add_argument(
        "--limit",
        type=float,
        default=22,
        metavar="SECONDS",
        help="time limit of the whole run if the server hangs (22)",
    )
    play.add_argument("--json", action="store_true", help="print one JSON object instead of a table")

    doctor = command("doctor", "check configuration, store and models, one line each")
    doctor.add_argument(
        "--url", help="address of the server to check (the address in the configuration); the token is THREADCAST_TOKEN"
    )
    doctor.add_argument(
        "--repair", action="store_true", help="repair the files of the private store in --data-dir; a copy is kept"
    )

    letters = command(
        "dead-letters", "show commands that were given up because they killed their workers", help_texts.DEAD_LETTERS
    )
    letters.add_argument("--limit", type=int, default=20, metavar="N", help="show the newest N (20)")
    letters.add_argument(
        "--json", action="store_true", help="print each as a line of JSON, with the command, at most 1 MiB of it"
    )
    for reading in (doctor, letters):
        reading.add_argument("--config", metavar="FILE", help=config)
        reading.add_argument("--data-dir", metavar="DIR", help=data_dir)

    token = command("token", "create a bearer token and the configuration lines that accept it", help_texts.TOKEN)
    token.add_argument("id", nargs="?", default="me", metavar="ID", help="name of the caller who has the token (me)")
    token.add_argument(
        "--permissions",
        default="",
        metavar="LIST",
        help="approve: decide about tool calls; diagnostics: see traces; metrics: read /metrics (none)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
