"""The assistants that people talk to, and the operator's word on their tools."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from server.settings.values import Seconds, Section

__all__ = ["Payload", "Profile", "Tool"]


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


class Payload(Section, frozen=True):
    """A type of structured data that clients show beside the text."""

    description: str = ""
    """For the model, where it may write such data itself."""

    schema: dict[str, Any] = {}  # Any: JSON Schema, checked as such when the server starts
    """JSON Schema (2020-12) of the data, an object; of a preview: of its `object`. Unset: anything goes."""

    marker: str = ""
    """The word before the data in a model's text, such as CHART_DATA; unset: only tools make it."""

    summary: str = ""
    """One line about the data, with its fields in braces: "{title}: {count} rows"."""


class Tool(Section, frozen=True):
    """The operator's word on one tool, above what the tool says of itself. Unset: as the tool says."""

    enabled: bool = True
    policy: Literal["auto", "ask", "deny", "preview", "client"] | None = None
    timeout_seconds: Seconds | None = None
    retry: Literal["once", "idempotent", "safe"] | None = None
    """May it run again after its worker died in the middle? Only if that does no harm."""

    description: str = ""
    """Together with `policy = "client"` this makes a tool that clients carry out: what the model is told of it."""

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
    """With `policy = "preview"`: the tool that runs when a person accepts it, with the fields of the object shown."""

    result_visibility: Literal["full", "summary", "hidden"] | None = None
    """What clients see of its results. hidden: only the model reads them."""
