"""Settings of profiles (assistants), their scopes, and their tools."""

import re
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from threadcast.settings.shown import check_http_url
from threadcast.settings.values import Seconds, Secret, Section
from threadcast_protocol.wire.loopback import is_loopback

__all__ = [
    "CONTEXT_WARN_RATIO",
    "Action",
    "Binding",
    "Profile",
    "ReplyGuard",
    "Scope",
    "ScopePath",
    "Starter",
    "Tool",
    "ToolBinding",
]

CONTEXT_WARN_RATIO = 0.7
"""Answers carry a warning when more than this share of the model's window is in use (HIST-7)."""

Script = Literal["Arabic", "Cyrillic", "Devanagari", "Greek", "Han", "Hangul", "Hebrew", "Japanese", "Latin", "Thai"]


class ReplyGuard(Section, frozen=True):
    """Asks the model again when its answer is in a script that your users do not read."""

    forbid_scripts: list[Script] = []
    """The scripts to refuse. Empty: no answer is refused. Names and quotations of a few letters are accepted in these
    scripts, and so is code."""

    instruction: str = ""
    """The instruction to the model after a refused answer. If the text is empty, the model is instructed to answer in
    the user's language."""

    max_retries: Annotated[int, Meta(ge=1, le=5)] = 1
    """Maximum repetitions in one run; then the next answer is accepted whatever its script."""

    retry_text: str = "[Retrying in English...]"
    """The text between the refused answer and the new answer in the stream of `POST /v1/agent/chat`. "": no text."""


SCOPE_PATH = r"/?[^/\x00-\x1f]{1,64}(/[^/\x00-\x1f]{1,64}){0,2}/?"
ScopePath: TypeAlias = Annotated[str, Meta(pattern=rf"^{SCOPE_PATH}$(?!\n)")]
"""A place in a profile: up to three names, from the outermost to the innermost, as the pages call them: "/Drug
search/Results"."""


class Action(Section, frozen=True):
    """A button that an assistant may suggest under its answer."""

    action: Annotated[str, Meta(min_length=1, max_length=256)]
    """The name of the action for clients."""

    label: str = ""
    description: str = ""
    """The description for the model: what the action does, and when to suggest it."""

    handler: Literal["client", "server"] = "client"
    """The side that runs the action. `server`: choosing the action sends a message to the assistant."""


class Starter(Section, frozen=True):
    """A message that the page offers for the beginning of a chat."""

    title: Annotated[str, Meta(min_length=1, max_length=80)]
    text: Annotated[str, Meta(min_length=1, max_length=4_000)]
    """The message, which is sent unchanged."""

    model: Annotated[str, Meta(max_length=256)] = ""
    """The model that answers this message. Unset: the model of the chat."""

    context: dict[str, Any] = {}  # Any: any JSON; checked as the thread's parameter of this name when the server starts
    """The parameter `context` of the new chat, such as the object that a demonstration is about."""


Greeting: TypeAlias = Annotated[str, Meta(max_length=500)]
Starters: TypeAlias = Annotated[list[Starter], Meta(max_length=12)]


class Scope(Section, frozen=True):
    """A place in a profile, such as a page and its tab, with values that replace the profile's values. The values apply
    to all places inside this place, too, unless an inner place has a value of its own."""

    system_prompt: str | None = None
    guidelines: str | None = None
    custom_instructions: str | None = None
    highlight: list[str] | None = None
    tools: list[str] = []
    """Tools that are offered in this place and the places inside it, besides the tools of the profile. A profile
    without a list of `tools` does not offer these tools elsewhere."""

    payloads: list[str] = []
    actions: list[Action] = []
    greeting: Greeting | None = None
    starters: Starters | None = None


class Binding(Struct, frozen=True, forbid_unknown_fields=True):
    """Fills an argument from the request's context when the model leaves the argument out or writes a value that does
    not match `format` (LOOP-11)."""

    arg: str
    from_context: str
    """The dotted path of the value in the context, such as "page.article.id"."""

    format: str = ""
    """"uuid", or a regular expression for the whole value. Unset: every non-empty value matches."""

    def __post_init__(self) -> None:
        try:
            re.compile(self.format)
        except re.error as wrong:
            raise ValueError(f"format: {wrong}") from None


class ToolBinding(Binding, frozen=True, kw_only=True):
    """A `Binding` of the named tool."""

    tool: str


def _check_template(url: str) -> None:
    """Raise ValueError if the origin of a URL is not fixed. The message does not show the URL."""
    check_http_url("url", url)
    parts = urlsplit(url)
    if "{" in parts.netloc or "@" in parts.netloc:
        raise ValueError("url: the part before the path must be fixed, without braces; credentials belong in headers")
    if parts.fragment or re.search(r"[{}]", re.sub(r"\{[A-Za-z_][A-Za-z0-9_]*\}", "", url)):
        raise ValueError("url: it has a fragment, or braces without the name of an argument")


class Profile(Section, frozen=True):
    """An assistant that clients choose by the thread's `mode`. The profile `agent` is the default."""

    title: str = ""
    """The title for people. Empty: the name of the profile."""

    description: str = ""
    greeting: Greeting | None = None
    """The greeting before the first message. Unset: the greeting in the file that `server.app` names, else the greeting
    of the page."""

    starters: Starters | None = None
    """Messages that are offered for the beginning of a chat. Unset: the messages in the file that `server.app` names.
    []: no messages."""

    system_prompt: str | None = None
    """The role of the assistant. Unset: a helpful assistant."""

    guidelines: str = ""
    """Rules for answers; the last section of the prompt."""

    aliases: list[str] = []
    """Other names of the profile in a thread's `mode`, such as ["EXPLORE", "NO_TOOLS"]. The case of names and aliases
    does not matter, and two profiles cannot share a name or alias."""

    custom_instructions: str = ""
    """Instructions that come before the thread's own instructions."""

    highlight: list[str] = []
    """Keys of the request context that the prompt names first, such as ["article_id", "page.title"]."""

    sections: list[str] | None = None
    """The sections of the prompt in order, including sections that the file named by `server.app` defines with
    @section. Unset: identity, context, payloads, capabilities, custom_instructions, guidelines."""

    tools: list[str] | None = None
    """Names of the tools that are offered. Unset: all tools except those that the scopes name."""

    delegate_to: list[str] | None = None
    """Profiles that child chats and background agents may have. Unset: all profiles. []: no profile."""

    payloads: list[str] = []
    """The payload types that the assistant can show, by the names of `[payloads.NAME]`."""

    actions: list[Action] = []
    """Buttons that the assistant may suggest."""

    scopes: dict[ScopePath, Scope] = {}
    """The places of the profile, such as [profiles.agent.scopes."reports/articles"]."""

    model: str = ""
    """The model of chats with this profile. Unset: `models.default`."""

    max_rounds: Annotated[int, Meta(ge=1, le=100)] | None = None
    """Maximum model calls in one run. Unset: `limits.max_rounds`."""

    fallback: list[str] | None = None
    """Models to ask, in this order, when the model of the chat is down. Unset: `models.fallback`."""

    summarizer: str | None = None
    """A model, as provider/model, that summarizes the messages that a long history leaves out. "": no summary. Unset:
    `models.summarizer`."""

    context_warn_ratio: Annotated[float, Meta(gt=0, le=1)] = CONTEXT_WARN_RATIO
    """Answers contain a warning when more than this share of the model's context is in use."""

    reply_guard: ReplyGuard = ReplyGuard()
    params: dict[str, Any] = {}  # Any: checked against the bounds of thread parameters when the server starts
    """Defaults of optional thread parameters (PROTOCOL §16), such as `temperature`."""

    bindings: list[ToolBinding] = []

    allow_autonomous: bool = False
    """Whether the thread parameter `autonomous_no_confirm` has an effect in chats of this profile. With this parameter
    a user lets all tools run without approval. If false, the parameter does not override the policy `ask`. Set it for
    assistants whose tools may run unattended."""


class Tool(Section, frozen=True):
    """The operator's settings of one tool, which override the tool's own settings. Where no value is set here, the
    tool's own value applies."""

    enabled: bool = True
    policy: Literal["auto", "ask", "deny", "preview", "client"] | None = None
    timeout_seconds: Seconds | None = None
    retry: Literal["once", "idempotent", "safe"] | None = None
    """Whether a call may run again after its worker died during the call. Allow it only if a repetition does no
    harm."""

    description: str = ""
    """The description for the model, if this table itself defines the tool: with `url` the tool is an HTTP service,
    with `policy = "client"` clients run the tool."""

    input_schema: dict[str, Any] = {}  # Any: JSON Schema, passed on to models as it is
    """The JSON Schema of the tool's arguments, which are an object, if this table itself defines the tool."""

    scopes: list[ScopePath] | None = None
    """The places that offer the tool, such as ["reports/articles"]; all places inside them offer it too. []: all places
    offer the tool, which is also the default of most tools."""

    required_role: str = ""
    """The role that a caller's token must have for the tool to be offered."""

    payload_type: str = ""
    """The payload type of the tool's preview or structured result."""

    commit_tool: str = ""
    """With `policy = "preview"`: the tool that runs when a person accepts the preview. Its arguments are the fields of
    the object shown."""

    preview_type: str = ""
    """For a commit tool: the payload type of the previews after which the tool runs. The tools of these previews then
    need no `payload_type`."""

    preview_schema: dict[str, Any] = {}  # Any: JSON Schema, checked when the server starts
    """For a commit tool or the tool of a preview: the JSON Schema of the object that is shown. A preview must match
    this schema and the schema of its payload type."""

    result_visibility: Literal["full", "summary", "hidden"] | None = None
    """The part of the results that clients see. hidden: only the model sees the results."""

    summarize: list[str] | None = None
    """The fields of JSON results that the model reads, with dots for inner fields, such as "page.title". []: the model
    reads the first sentence of the result."""

    category: str = ""
    """The category of the tool. A user can approve all `editing` or all `dangerous` tools of a chat at once."""

    hide_input: bool | None = None
    """Whether to hide the arguments of a running call from clients."""

    label_arg: str = ""
    """The argument whose value is shown as the label of a call."""

    untrusted: bool | None = None
    """Whether the results may contain words of strangers, such as web pages or mail. Once such a result is in a chat,
    the tools marked `sensitive` need a person's approval."""

    approver: Literal["any", "another"] | None = None
    """another: a call must be approved by another caller than the caller who asked for it. This value needs the policy
    `ask`, and tokens with `approves_for`."""

    sensitive: bool | None = None
    """Whether each call needs a person's approval once untrusted content is in the chat, even with the policy `auto`
    and after "always allow". Set it for tools that send, pay or delete."""

    url: str = ""
    """The address of an HTTP service, which becomes a tool: "https://api.example.com/articles/{id}". Each {name} is an
    argument. An argument fills a single path segment or a value in the query, and cannot be in the origin."""

    method: Literal["GET", "HEAD", "DELETE", "POST", "PUT", "PATCH"] = "GET"
    """The HTTP method. Arguments that `url` does not name are sent in the query, or in the JSON body with POST, PUT and
    PATCH."""

    headers: dict[str, Secret] = {}
    """Headers of every request to `url`."""

    forward_auth: bool | None = None
    """Whether the tool acts with a credential of the caller. The credential is the value of the header
    `Threadcast-Forward-Authorization`, or, without `auth.tokens`, also of the header `Authorization`. The credential is
    sent as `Authorization` and only to the origin of `url`, which must use https or be on this machine."""

    def __post_init__(self) -> None:
        if self.url:
            _check_template(self.url)
            parts = urlsplit(self.url)
            if self.forward_auth and parts.scheme != "https" and not is_loopback(parts.hostname or ""):
                raise ValueError(
                    "forward_auth would send credentials of callers unencrypted; use https in url, or a service on "
                    "this machine"
                )
        elif self.headers or self.method != "GET":
            raise ValueError("method and headers are only for a tool with a url")
