"""The command `threadcast`: what can be asked on a command line, and who carries it out.

It knows the words and hands them on; each subcommand lives in `console/`, or is a half of the house. Imports wait for
the subcommand that needs them, so that `--help` comes at once. Exit codes: 0 all is well, 1 it failed, 2 it was asked
wrongly, 130 it was interrupted.
"""

import argparse
import os
import sys
from collections.abc import Sequence

__all__ = ["main"]

_EXAMPLES = """\
examples:
  threadcast serve                        everything in one process, at http://127.0.0.1:8000
  threadcast chat                         a new chat, in another terminal
  OPENAI_BASE_URL=http://127.0.0.1:11434/v1 threadcast serve
                                          the same with the models of a local server
  REDIS_URL=redis://127.0.0.1:6379 threadcast web
  REDIS_URL=redis://127.0.0.1:6379 threadcast worker
                                          the two halves, any number of each
  threadcast conformance                  whether a server keeps the protocol
  threadcast doctor                       what is configured, by whom, and whether it works

Configuration: threadcast.toml in this directory; threadcast.example.toml names every value."""

_SERVE = """\
Web, workers and a private store in one process. The store lies in --data-dir and is there again at the next start.
With REDIS_URL (store.url) that store is used instead. Without any model configured, demo models answer."""

_WEB = """\
The half that speaks HTTP; workers run elsewhere, over the same store (REDIS_URL).

  threadcast web --processes 4            four processes on one port (Linux), one that dies is started again

The kernel spreads connections over them. SIGTERM or Ctrl-C ends all, SIGHUP replaces them one after another without
refusing a connection. Each counts for itself: with server.metrics_port = 9100 the first has its /metrics, /readyz and
/livez at 9100, the second at 9101, and so on. limits.streams_max and the like are those of one process."""

_WORKER = """\
The half that works on chats, over the same store as the web half (REDIS_URL).

  threadcast worker --processes 4         four processes that share the chats, one that dies is started again

SIGTERM or Ctrl-C ends all, SIGHUP replaces them one after another. With server.metrics_port = 9200 the first has its
/metrics, /readyz and /livez at 9200, the second at 9201, and so on."""

_CHAT = """\
Talk in the terminal. The chat goes on when you leave; come back with its id, from any number of terminals at once.
Without a terminal every line of standard input is a message, and the end comes after the last answer:

  echo "What is a lease?" | threadcast chat --new
  threadcast chat my-notes --model demo/essay"""

_TAIL = """\
Every event of a chat, one JSON object a line, from a snapshot on, for as long as you like:

  threadcast tail my-notes | jq -r .type
  threadcast tail my-notes --raw          the very bytes of the stream"""

_DEAD_LETTERS = """\
A command that ends its worker each time it is taken up is refused after three tries (its client sees the code
`poison`), and a copy is kept for you: the newest 1,000 of each bucket. This reads them from the store itself: the one
of store.url (REDIS_URL), or the private one of a server that runs here.

  threadcast dead-letters
  threadcast dead-letters --json | jq -r .body"""

_TOKEN = """\
A new bearer token. The lines for threadcast.toml go to standard output, the token itself to standard error:

  threadcast token alice >> threadcast.toml"""


_CONFORMANCE = """\
Play the transcripts of the protocol against a server, and print what it does otherwise. Each is played in a fresh
chat, which is deleted when all went well. The server needs the demo models, or others that behave like them.

  threadcast conformance http://127.0.0.1:8000
  threadcast conformance URL --only 'approval-*' plain-turn
  threadcast conformance URL --model demo/echo=test/parrot --json

Exit code: 0 nothing failed, 1 something did, 2 nothing could be played. docs/conformance.md describes transcripts."""


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"threadcast {version('threadcast')}")
        parser.exit()


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out one command line; the exit code."""
    options = _parser().parse_args(argv)
    # As this process was started, or would have been.
    again = sys.orig_argv[1:] if argv is None else ["-m", "server.cli", *argv]
    try:
        return _run(options, [sys.executable, *again])
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `threadcast tail … | head`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains while it flushes
        return 0


def _run(options: argparse.Namespace, command: list[str]) -> int:
    match options.command:
        case "token":
            import msgspec

            from protocol.errors import explain
            from server.console.token import token

            try:
                return token(options.id, [word for word in options.permissions.split(",") if word])
            except msgspec.ValidationError as wrong:
                return _refuse(f"ID {options.id!r}, --permissions {options.permissions!r}: {explain(wrong)[0]}")
        case "serve" | "web" | "worker":
            from server.light import begin_lightly

            begin_lightly()
            from server.console import serving
            from server.settings.sources import BadSettings

            flags = {path: getattr(options, path, None) for path in _PATHS}
            try:
                if options.command == "serve":
                    return serving.serve(flags, options.config)
                many = serving.Many(options.processes, options.seat, command)
                return {"web": serving.web, "worker": serving.worker}[options.command](flags, options.config, many)
            except BadSettings as wrong:
                return _refuse(str(wrong))
        case "doctor":
            from server.console.doctor import doctor

            if options.url and not options.url.startswith(("http://", "https://")):
                return _refuse(f"--url {options.url!r} must begin with http:// or https://")
            if options.repair:
                from server.console.doctor_repair import repair

                return repair(os.environ, options.config, data_dir=options.data_dir)
            return doctor(os.environ, options.config, url=options.url, data_dir=options.data_dir)
        case "dead-letters":
            from server.console.dead_letters import dead_letters

            return dead_letters(
                os.environ, options.config, as_json=options.json, limit=options.limit, data_dir=options.data_dir
            )
        case "conformance":
            return _run_conformance(options)
    return _run_client(options)


def _run_conformance(options: argparse.Namespace) -> int:
    from pathlib import Path

    from server.console.conformance.report import Wanted, conformance

    if not options.url.startswith(("http://", "https://")):
        return _refuse(f"URL {options.url!r} must begin with http:// or https://")
    models = dict(pair.partition("=")[::2] for pair in options.model)
    if not all(models.values()):
        return _refuse("--model is given as NAME=THEIRS, such as demo/echo=test/parrot")
    if options.at_once < 1 or not options.wait > 0 or not options.limit > 0:
        return _refuse("--at-once, --wait and --limit must be above 0")
    return conformance(
        Wanted(
            url=options.url,
            token=options.token or os.environ.get("THREADCAST_TOKEN"),
            only=options.only,
            models=models,
            directory=Path(options.transcripts) if options.transcripts else None,
            at_once=options.at_once,
            wait_seconds=options.wait,
            limit_seconds=options.limit,
            as_json=options.json,
            lists=options.list,
        )
    )


def _run_client(options: argparse.Namespace) -> int:
    from protocol.errors import BadRequest
    from protocol.ids import check_chat_id
    from server.settings.sources import BadSettings

    try:
        chat_id = check_chat_id(options.id) if options.id else None
        url = options.url or os.environ.get("THREADCAST_URL") or _configured_url()
    except (BadRequest, BadSettings) as wrong:
        return _refuse(str(wrong))
    if not url.startswith(("http://", "https://")):
        return _refuse(f"--url {url!r} must begin with http:// or https://")
    token = os.environ.get("THREADCAST_TOKEN")
    if options.command == "tail":
        from server.console.tail import tail

        return tail(url, token, options.id, last_event_id=options.last_event_id, is_raw=options.raw)
    from server.console.chat import chat, new_chat_id

    if options.new and chat_id:
        return _refuse("--new makes an id of its own; leave the id away")
    return chat(url, token, chat_id or new_chat_id(), options.model)


def _configured_url() -> str:
    from server.console.doctor import local_url
    from server.settings.sources import load_settings

    return local_url(load_settings(os.environ).settings)


def _refuse(text: str) -> int:
    print(f"threadcast: {text}", file=sys.stderr)
    return 2


_PATHS = (
    "server.host",
    "server.port",
    "server.app",
    "server.log_format",
    "store.data_dir",
    "store.memory",
    "models.default",
)
"""Flags are stored under the path of the setting that they override."""


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="threadcast",
        description="A chat server for LLM agents: typed commands in, one sequenced log per chat, the same answer in "
        "every tab.",
        epilog=_EXAMPLES,
        formatter_class=raw,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, short: str, description: str | None = None) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=short, description=description or short, formatter_class=raw)

    serve = command("serve", "run everything in one process", _SERVE)
    web = command("web", "run the half that speaks HTTP (needs REDIS_URL)", _WEB)
    worker = command("worker", "run the half that works on chats (needs REDIS_URL)", _WORKER)
    for listening in (serve, web):
        listening.add_argument("--host", dest="server.host", metavar="ADDRESS", help="address to listen on (127.0.0.1)")
        listening.add_argument("--port", dest="server.port", metavar="PORT", type=int, help="port to listen on (8000)")
    for many in (web, worker):
        many.add_argument("--processes", type=int, default=1, metavar="N", help="so many at once, from one command (1)")
        many.add_argument("--seat", help=argparse.SUPPRESS)  # what the supervisor of several gives to each
    serve.add_argument(
        "--memory", dest="store.memory", action="store_true", default=None, help="keep nothing: all is gone at the end"
    )
    for serving in (serve, web, worker):
        serving.add_argument("--data-dir", dest="store.data_dir", metavar="DIR", help="where data lies (.threadcast)")
        serving.add_argument("--config", metavar="FILE", help="configuration file (threadcast.toml, if it is there)")
        serving.add_argument("--app", dest="server.app", metavar="FILE.py", help="a Python file with tools of yours")
        serving.add_argument(
            "--model", dest="models.default", metavar="NAME", help="model of chats that name none, as provider/model"
        )
        serving.add_argument(
            "--log-format", dest="server.log_format", choices=("auto", "json", "pretty"), help="auto: by terminal"
        )

    url = "the server's address (THREADCAST_URL, or what threadcast.toml says); a token comes from THREADCAST_TOKEN"
    chat = command("chat", "talk in the terminal", _CHAT)
    chat.add_argument("id", nargs="?", metavar="ID", help="the chat; without one, a new chat")
    chat.add_argument("--new", action="store_true", help="a new chat, as without ID")
    chat.add_argument("--model", metavar="NAME", help="the chat's model from now on, as provider/model")
    chat.add_argument("--url", help=url)

    tail = command("tail", "print a chat's events as they come", _TAIL)
    tail.add_argument("id", metavar="ID", help="the chat")
    tail.add_argument("--from", dest="last_event_id", metavar="EVENT_ID", help="go on after this event id")
    tail.add_argument("--raw", action="store_true", help="the bytes of one connection, exactly")
    tail.add_argument("--url", help=url)

    play = command("conformance", "check that a server keeps the protocol", _CONFORMANCE)
    play.add_argument("url", metavar="URL", nargs="?", default="http://127.0.0.1:8000", help="http://127.0.0.1:8000")
    play.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these transcripts; * stands for anything")
    play.add_argument("--list", action="store_true", help="print names and what they are about; play nothing")
    play.add_argument(
        "--token", help="a bearer token (THREADCAST_TOKEN); it needs the permissions approve and diagnostics"
    )
    play.add_argument(
        "--model", action="append", default=[], metavar="NAME=THEIRS", help="play THEIRS where a transcript says NAME"
    )
    play.add_argument("--transcripts", metavar="DIR", help="other transcripts than the ones that come along")
    play.add_argument("--at-once", type=int, default=6, metavar="N", help="transcripts played together (6)")
    play.add_argument("--wait", type=float, default=5, metavar="SECONDS", help="for any one expected thing (5)")
    play.add_argument("--limit", type=float, default=22, metavar="SECONDS", help="for all of it, if it hangs (22)")
    play.add_argument("--json", action="store_true", help="one JSON object instead of a table")

    doctor = command("doctor", "check configuration, store and models, a line each")
    doctor.add_argument("--config", metavar="FILE", help="configuration file (threadcast.toml, if it is there)")

    doctor.add_argument(
        "--url", help="the server that is asked (what the configuration says); a token: THREADCAST_TOKEN"
    )

    doctor.add_argument(
        "--repair", action="store_true", help="mend the files of the private store in --data-dir; a copy is kept"
    )

    letters = command("dead-letters", "commands that were given up because they killed their workers", _DEAD_LETTERS)
    letters.add_argument("--config", metavar="FILE", help="configuration file (threadcast.toml, if it is there)")
    for looking in (doctor, letters):
        looking.add_argument("--data-dir", metavar="DIR", help="where the data of the server lies (.threadcast)")
    letters.add_argument("--limit", type=int, default=20, metavar="N", help="the newest N (20)")
    letters.add_argument("--json", action="store_true", help="one JSON object a line, with the whole command")

    token = command("token", "make a bearer token and the lines that let it in", _TOKEN)
    token.add_argument("id", nargs="?", default="me", metavar="ID", help="whom it speaks for (me)")
    token.add_argument("--permissions", default="approve", metavar="LIST", help="approve,diagnostics (approve)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
