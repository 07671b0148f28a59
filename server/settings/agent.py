"""The assistants that people talk to, and the operator's word on their tools."""

import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from msgspec import Meta

from server.settings.values import Seconds, Secret, Section

__all__ = ["Binding", "Profile", "Tool"]


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
    """Raises ValueError: not a URL whose origin is fixed."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc or "{" in parts.netloc or "@" in parts.netloc:
        raise ValueError(f"url: {url!r} has no fixed http(s) origin; credentials belong into headers")
    if parts.fragment or re.search(r"[{}]", re.sub(r"\{[A-Za-z_][A-Za-z0-9_]*\}", "", url)):
        raise ValueError(f"url: {url!r} has a fragment, or braces that name no argument")


class Profile(Section, frozen=True):
    """An assistant that clients choose by the thread's `mode`. The one called `agent` is the default."""

    title: str = ""
    """Shown to people; empty: the profile's name."""

    description: str = ""
    system_prompt: str | None = None
    """Unset: a plain helpful assistant."""

    tools: list[str] | None = None
    """Names of the tools it is offered; unset: all."""

    model: str = ""
    """Unset: `models.default`."""

    max_rounds: Annotated[int, Meta(ge=1, le=100)] | None = None
    """Unset: `limits.max_rounds`."""

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

    scopes: list[Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}(/[A-Za-z0-9_-]{1,64}){0,2}$")]] | None = None
    """Where it is offered, such as ["reports/articles"], and in every place inside; unset: as the tool says, [] and
    most tools: everywhere."""

    required_role: str = ""
    """Offered only to callers whose token has this role."""

    payload_type: str = ""
    """What its preview, or its structured result, is published as."""

    commit_tool: str = ""
    """With `policy = "preview"`: the tool that runs, with the same arguments, when a person accepts the preview."""

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
