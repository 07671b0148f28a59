"""The texts that `threadcast --help` and `threadcast COMMAND --help` print besides the options."""

__all__ = [
    "APPROVE",
    "CHAT",
    "CONFORMANCE",
    "DEAD_LETTERS",
    "DEV",
    "EXAMPLES",
    "INIT",
    "SERVE",
    "TAIL",
    "TOKEN",
    "WEB",
    "WORKER",
]

EXAMPLES = """\
examples:
  threadcast serve                        everything in one process, at http://127.0.0.1:8000
  threadcast dev my_agents.py             the same, started again whenever the file changes
  threadcast init                         a configuration file and a first file of tools, in this directory
  threadcast chat                         a new chat, in another terminal
  OPENAI_BASE_URL=http://127.0.0.1:11434/v1 threadcast serve
                                          the same, with the models of a local model server
  REDIS_URL=redis://127.0.0.1:6379 threadcast web
  REDIS_URL=redis://127.0.0.1:6379 threadcast worker
                                          the two halves of a server, any number of each
  threadcast conformance                  check that a server keeps the protocol
  threadcast doctor                       show the configuration, where each value comes from, and what fails

Configuration: threadcast.toml in this directory; `threadcast init` writes one that names every value."""

INIT = """\
Write a configuration file and a first file of tools. Existing files are not changed.

  threadcast.toml     every value with its default, as a comment; it names tools.py
  tools.py            two tools, which you can change or replace

  threadcast init && threadcast serve
  threadcast init my-server               write into the directory my-server, which is created if necessary"""

SERVE = """\
Run the web half, the worker half and a private store in one process. The store keeps its data in --data-dir, and the
next start uses it again. If REDIS_URL (store.url) is set, that store is used instead. If no model is configured, demo
models answer."""

DEV = """\
Run `threadcast serve` with a file of agents and tools. When a Python or TOML file in its directory or below changes,
the server starts again; the chats stay, and interrupted runs continue. All options of `serve` are accepted.

  threadcast dev my_agents.py --port 9000"""

WEB = """\
Run the web half, which serves HTTP. It needs a store (REDIS_URL); workers run separately and use the same store.

  threadcast web --processes 4            four processes on one port (Linux); a process that dies is started again

The kernel distributes connections among the processes. SIGTERM or Ctrl-C ends all processes; SIGHUP replaces them one
after another without refusing a connection. Each process has its own metrics: with server.metrics_port = 9100 the first
process has /metrics, /readyz and /livez at port 9100, the second at 9101, and so on. Limits such as limits.streams_max
apply to each process."""

WORKER = """\
Run the worker half, which runs the chats. It needs the store of the web half (REDIS_URL).

  threadcast worker --processes 4         four processes that share the chats; a process that dies is started again

SIGTERM or Ctrl-C ends all processes; SIGHUP replaces them one after another. With server.metrics_port = 9200 the first
process has /metrics, /readyz and /livez at port 9200, the second at 9201, and so on."""

CHAT = """\
Talk in the terminal. The chat continues when you leave; come back with its id, from any number of terminals at once.
If standard input is not a terminal, each of its lines is a message, and the command ends after the last answer:

  echo "What is a lease?" | threadcast chat --new
  threadcast chat my-notes --model demo/essay"""

APPROVE = """\
Show the calls in another caller's chat that need your approval, and allow or deny them. The operator says for whom you
approve (auth.tokens.approves_for); the requester tells you the id of the chat:

  THREADCAST_TOKEN=tc_… threadcast approve my-notes

In a chat of your own, the questions of agents and tools are asked, too."""

TAIL = """\
Print every event of a chat as a line of JSON, beginning with a snapshot, until you press Ctrl-C:

  threadcast tail my-notes | jq -r .type
  threadcast tail my-notes --raw          print the bytes of the stream unchanged"""

MCP = """\
Be an MCP server on standard input and output, for clients that start programs: agents and editors. Every message is
passed to a running server of ours, so chats are shared with its page and all other clients.

  { "mcpServers": { "threadcast": { "command": "threadcast", "args": ["mcp"] } } }

Start the server first, with `threadcast serve`. Clients that speak HTTP need no program: give them its address /mcp."""

DEAD_LETTERS = """\
A command that kills its worker at each of three tries is refused (its client sees the code `poison`), and the store
keeps a copy: the newest 1,000 of each bucket. This command reads the copies directly from the store: from store.url
(REDIS_URL), or from the private store of a server that runs on this machine.

  threadcast dead-letters
  threadcast dead-letters --json | jq -r .body"""

TOKEN = """\
Create a bearer token. The lines for threadcast.toml are printed to standard output, the token to standard error:

  threadcast token alice >> threadcast.toml
  threadcast token bob --permissions approve >> threadcast.toml   may decide about tool calls"""

CONFORMANCE = """\
Play the transcripts of the protocol against a server, and print the differences. Each transcript is played in a new
chat, which is deleted if the transcript passed. The server needs the demo models, or models that behave like them.

  threadcast conformance http://127.0.0.1:8000
  threadcast conformance URL --only 'approval-*' plain-turn
  threadcast conformance URL --model demo/echo=test/parrot --json
  threadcast conformance URL --mode my-agent        an agent that answers like demo/echo

Exit codes: 0 when no transcript failed, 1 when one failed, 2 when none could be played. docs/conformance.md describes
the transcripts."""
