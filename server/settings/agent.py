"""The assistants that people talk to, and the operator's word on their tools."""

import re
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Meta

from server.settings.shown import check_http_url
from server.settings.values import Seconds, Secret, Section

__all__ = ["Action", "Binding", "Profile", "ReplyGuard", "Scope", "ScopePath", "Starter", "Tool"]

Script = Literal["Arabic", "Cyrillic", "Devanagari", "Greek", "Han", "Hangul", "Hebrew", "Japanese", "Latin", "Thai"]


class ReplyGuard(Section, frozen=True):
    """Answers in a script that nobody here reads are asked for again."""

    forbid_scripts: list[Script] = []
    """Empty: no guard. Names and quotations of a few letters pass, and so does code."""

    instruction: str = ""
    """What the model is told then; empty: to answer in the user's language."""

    max_retries: Annotated[int, Meta(ge=1, le=5)] = 1
    """How often in one run; then the answer is taken as it is."""

    retry_text: str = "[Retrying in English...]"
    """What stands between the refused answer and the new one in the stream of `POST /v1/agent/chat`; "": nothing."""


SCOPE_PATH = r"/?[^/\x00-\x1f]{1,64}(/[^/\x00-\x1f]{1,64}){0,2}/?"
ScopePath: TypeAlias = Annotated[str, Meta(pattern=rf"^{SCOPE_PATH}$(?!\n)")]
"""A place in a profile: up to three names, from the outside in, as the pages call them: "/Drug search/Results"."""


class Action(Section, frozen=True):
    """A button that an assistant may suggest under its answer."""

    action: Annotated[str, Meta(min_length=1, max_length=256)]
    """The word that clients know it by."""

    label: str = ""
    description: str = ""
    """What the model is told of it: what it does, and when to suggest it."""

    handler: Literal["client", "server"] = "client"
    """Who carries it out; `server`: choosing it sends a message to the assistant."""


class Starter(Section, frozen=True):
    """A message to begin a chat with, offered before the first one."""

    title: Annotated[str, Meta(min_length=1, max_length=80)]
    text: Annotated[str, Meta(min_length=1, max_length=4_000)]
    """The message, sent as it stands."""

    model: Annotated[str, Meta(max_length=256)] = ""
    """The model that answers this one message; unset: the chat's."""

    context: dict[str, Any] = {}  # Any: any JSON; checked as the thread's parameter of this name when the server starts
    """The parameter `context` of the chat that it begins, such as the object that a demonstration is about."""


Greeting: TypeAlias = Annotated[str, Meta(max_length=500)]
Starters: TypeAlias = Annotated[list[Starter], Meta(max_length=12)]


class Scope(Section, frozen=True):
    """A place in a profile, such as a page and its tab, and what it says otherwise than the profile. What it says holds
    in the places inside it too; the most specific one wins."""

    system_prompt: str | None = None
    guidelines: str | None = None
    custom_instructions: str | None = None
    highlight: list[str] | None = None
    tools: list[str] = []
    """Offered here and inside, besides those of the profile; a profile without a list of `tools` offers them nowhere
    else."""

    payloads: list[str] = []
    actions: list[Action] = []
    greeting: Greeting | None = None
    starters: Starters | None = None


class Binding(Section, frozen=True):
    """An argument that the request's context fills in when the model leaves it out, or writes what does not fit."""

    tool: str
    arg: str
    from_context: str
    """Where it stands in the context, dotted: "page.article.id"."""

    format: str = ""
    """uuid, or a regular expression for the whole value; unset: anything fits that is not empty."""

    def __post_init__(self) -> None:
        try:
            re.compile(self.format)
        except re.error as wrong:
            raise ValueError(f"format: {wrong}") from None


def _check_template(url: str) -> None:
    """Raises ValueError, which does not show the URL: its origin is not fixed."""
    check_http_url("url", url)
    parts = urlsplit(url)
    if "{" in parts.netloc or "@" in parts.netloc:
        raise ValueError("url: it has no fixed http(s) origin; credentials belong into headers")
    if parts.fragment or re.search(r"[{}]", re.sub(r"\{[A-Za-z_][A-Za-z0-9_]*\}", "", url)):
        raise ValueError("url: it has a fragment, or braces that name no argument")


class Profile(Section, frozen=True):
    """An assistant that clients choose by the thread's `mode`. The one called `agent` is the default."""

    title: str = ""
    """Shown to people; empty: the profile's name."""

    description: str = ""
    greeting: Greeting | None = None
    """The greeting before the first message; unset: the one in the file of `server.app`, else the page's own words."""

    starters: Starters | None = None
    """Messages to begin a chat with; unset: as above, []: none."""

    system_prompt: str | None = None
    """Unset: a plain helpful assistant."""

    guidelines: str = ""
    """How to answer; the last section of its prompt."""

    aliases: list[str] = []
    """Other words for it in a thread's `mode`, such as ["EXPLORE", "NO_TOOLS"]. Case does not matter, neither here nor
    in its own name; no word may mean two profiles."""

    custom_instructions: str = ""
    """Stand before those of the thread."""

    highlight: list[str] = []
    """Keys of the request context that its prompt names first, such as ["article_id", "page.title"]."""

    sections: list[str] | None = None
    """The sections of its prompt in order, also those that the file of `server.app` defines by @section; unset:
    identity, context, payloads, capabilities, custom_instructions, guidelines."""

    tools: list[str] | None = None
    """Names of the tools it is offered; unset: all but those that its scopes name."""

    delegate_to: list[str] | None = None
    """Profiles that the chats below its chats may have, background agents too; unset: all, []: none."""

    payloads: list[str] = []
    """Names of `[payloads.NAME]`: what it can show."""

    actions: list[Action] = []
    """Buttons that it may suggest."""

    scopes: dict[ScopePath, Scope] = {}
    """Its places, such as [profiles.agent.scopes."reports/articles"]."""

    model: str = ""
    """Unset: `models.default`."""

    max_rounds: Annotated[int, Meta(ge=1, le=100)] | None = None
    """Unset: `limits.max_rounds`."""

    fallback: list[str] | None = None
    """Models that answer, in this order, when the one that was asked is down; unset: `models.fallback`."""

    summarizer: str | None = None
    """A model that sums up what a long history leaves out, as provider/model; "": leave it out without a summary;
    unset: `models.summarizer`."""

    context_warn_ratio: Annotated[float, Meta(gt=0, le=1)] = 0.7
    """Of the model's window in use, from which on answers carry a warning."""

    reply_guard: ReplyGuard = ReplyGuard()
    params: dict[str, Any] = {}  # Any: checked against the bounds of thread parameters when the server starts
    """Defaults of optional thread parameters (PROTOCOL §16), such as `temperature`."""

    bindings: list[Binding] = []


class Tool(Section, frozen=True):
    """The operator's word on one tool, above what the tool says of itself. Unset: as the tool says."""

    enabled: bool = True
    policy: Literal["auto", "ask", "deny", "preview", "client"] | None = None
    timeout_seconds: Seconds | None = None
    retry: Literal["once", "idempotent", "safe"] | None = None
    """May it run again after its worker died in the middle? Only if that does no harm."""

    description: str = ""
    """What the model is told of a tool that is made here: with `url` an HTTP service, with `policy = "client"` one
    that clients carry out."""

    input_schema: dict[str, Any] = {}  # Any: JSON Schema, passed on to models as it is
    """Of such a tool: JSON Schema of its arguments, an object."""

    scopes: list[ScopePath] | None = None
    """Where it is offered, such as ["reports/articles"], and in every place inside; unset: as the tool says, [] and
    most tools: everywhere."""

    required_role: str = ""
    """Offered only to callers whose token has this role."""

    payload_type: str = ""
    """What its preview, or its structured result, is published as."""

    commit_tool: str = ""
    """With `policy = "preview"`: the tool that runs when a person accepts it, with the fields of the object shown."""

    preview_type: str = ""
    """Of a tool that is run so: what the previews that lead to it are published as. Their tools need no `payload_type`
    then."""

    preview_schema: dict[str, Any] = {}  # Any: JSON Schema, checked when the server starts
    """Of such a tool, or of a preview's own: JSON Schema of the object that is shown. Previews are held to it besides
    the schema of their payload type."""

    result_visibility: Literal["full", "summary", "hidden"] | None = None
    """What clients see of its results. hidden: only the model reads them."""

    summarize: list[str] | None = None
    """The fields that the model reads of its JSON results, dotted where they lie deeper; []: the first sentence."""

    category: str = ""
    """editing, dangerous: can be approved wholesale in a chat."""

    hide_input: bool | None = None
    """Keeps its arguments out of what clients see of a running call."""

    label_arg: str = ""
    """The argument that is shown as the call's label."""

    url: str = ""
    """Makes a tool of an HTTP service: "https://api.example.com/articles/{id}". Each {name} is an argument, a single
    path segment or a value in the query; none may stand in the origin."""

    method: Literal["GET", "HEAD", "DELETE", "POST", "PUT", "PATCH"] = "GET"
    """The other arguments go into the query; of POST, PUT and PATCH they are the JSON body."""

    headers: dict[str, Secret] = {}
    """Sent with every request to `url`."""

    forward_auth: bool | None = None
    """The caller's own Authorization is sent along, to the origin of `url` only."""

    def __post_init__(self) -> None:
        if self.url:
            _check_template(self.url)
        elif self.headers or self.method != "GET":
            raise ValueError("method and headers belong to a tool with a url")
