"""The settings of MCP servers."""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from threadcast.settings.shown import check_http_url
from threadcast.settings.values import Name, Seconds, Secret, Section

__all__ = ["Attachable", "Mcp"]

Attachable: TypeAlias = Literal["off", "listed", "any"]


class Mcp(Section, frozen=True):
    """An MCP server. Models see its tools as `mcp__NAME__TOOL`. It needs the extra `mcp`."""

    command: str = ""
    """A program that speaks MCP over its standard input and output. Threadcast starts the program at its own start."""

    args: list[str] = []
    env: dict[str, Secret] = {}
    """Environment variables for the program, besides PATH, HOME and similar variables. The server's other variables are
    not passed on."""

    url: str = ""
    """In place of a command: the address of a server that speaks MCP over streamable HTTP."""

    headers: dict[str, Secret] = {}
    """Headers of every request to `url`, such as Authorization."""

    policy: Literal["auto", "ask", "deny"] = "ask"
    """The policy of all tools of this server; `tools.mcp__NAME__TOOL.policy` overrides it for one tool. Use `auto` only
    for servers that can do no harm, whatever a model calls."""

    resources: Attachable | None = None
    """The resources that callers may attach to messages. Resources are read without approval, whatever `policy` says.
    off: no resources. listed: the resources that the server lists. any: any URI that the server answers, such as the
    URIs of its templates; a server that reads files may then be asked for any file. Unset: off if `auth.tokens` are
    set, else any."""

    prompts: Attachable | None = None
    """The prompts that callers may attach to messages. The values and the default are those of `resources`."""

    attach_role: Name | Literal[""] = ""
    """The role that a caller's token must have to list and attach resources and prompts of this server."""

    untrusted: bool = False
    """Whether the server's resources, prompts and results of tools may contain words of strangers. Once such content is
    in a chat, the tools marked `sensitive` need a person's approval."""

    elicitation: bool = True
    """Whether the server may ask people while one of its tools runs (`elicitation/create`). The chat shows the question
    as a question of this server. Set it to false for servers that should not write to people."""

    timeout_seconds: Seconds | None = None
    """Seconds for a tool call, a resource or a prompt. Unset: `limits.tool_timeout_seconds`."""

    message_max_bytes: Annotated[int, Meta(ge=65_536, le=67_108_864)] = 4_194_304
    """Maximum bytes of one message of the server: a line of a program, or a body or an event over HTTP. A longer
    message ends the connection, and the program. Decoding the default number of bytes takes 10 ms. Raise it for a
    server that you trust to send large files or images."""

    message_max_values: Annotated[int, Meta(ge=1_000, le=1_000_000)] = 50_000
    """Maximum values (numbers, texts, lists, objects) in the JSON of one message; an answer with more fails its call.
    Decoding and checking the default number of values takes 70 ms; the worst 4 MiB would take seconds. A list of 1,000
    tools has about 20,000 values."""

    messages_per_second: Annotated[int, Meta(ge=1, le=100_000)] = 200
    """Messages of the server that are read in a second, after a burst of twice as many; a server that sends more waits.
    At this rate the messages take at most a twentieth of a processor. Raise it for a server that answers very many
    calls."""

    tools_max: Annotated[int, Meta(ge=1, le=5_000)] = 500
    """Maximum tools of the server, more than most models accept. Further tools are left out and logged."""

    enabled: bool = True

    def attachable(self, kind: Literal["resources", "prompts"], *, has_tokens: bool) -> Attachable:
        """Return which resources or prompts callers may attach. `has_tokens`: whether `auth.tokens` are set."""
        wanted = self.resources if kind == "resources" else self.prompts
        return wanted or ("off" if has_tokens else "any")

    def __post_init__(self) -> None:
        if bool(self.command) == bool(self.url):
            raise ValueError("an MCP server needs either a command or a url")
        if self.url:
            check_http_url("url", self.url)
