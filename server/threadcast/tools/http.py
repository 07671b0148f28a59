"""Makes tools of HTTP services (TOOL-6, TOOL-7): arguments become a path, a query or a JSON body, and the answer is the
result.

A tool's origin is fixed: arguments fill single path segments and query values, and redirects are not followed, so
neither a model nor a service can direct credentials elsewhere. Sent credentials are removed from answers, and errors
show only the type of the exception, since its text may quote headers. All tools share one client, which is closed with
the worker.
"""

import re
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from threadcast.tools.base import (
    DEFAULT_TIMEOUT_SECONDS,
    Policy,
    Retry,
    ToolOutput,
    ToolResult,
)
from threadcast.tools.context import ToolContext
from threadcast.tools.traits import NO_TRAITS
from threadcast_protocol.wire.errors import ToolFailed
from threadcast_protocol.wire.loopback import is_loopback
from threadcast_protocol.wire.messages import JsonObject

if TYPE_CHECKING:
    import httpx2

__all__ = ["EXCERPT_MAX_CHARACTERS", "RESPONSE_MAX_BYTES", "HttpClient", "HttpTool", "Method", "expand"]

Method: TypeAlias = Literal["GET", "HEAD", "DELETE", "POST", "PUT", "PATCH"]

RESPONSE_MAX_BYTES = 1024 * 1024
"""Maximum bytes of an answer, four times the text that a model is shown; a longer answer is cut and its connection
closed."""

EXCERPT_MAX_CHARACTERS = 500
"""Maximum characters shown of the body of a failure; the reason is usually at its beginning."""

CONNECT_SECONDS = 5.0
"""Seconds to connect to a service; the runner limits the whole call by the tool's timeout."""

SECRET_MIN_CHARACTERS = 8
"""Minimum length of a credential that is removed from answers: shorter values occur in ordinary words."""

_HARMLESS_HEADERS = frozenset({"accept", "accept-language", "content-type", "user-agent"})
_PLACE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_IN_NO_SEGMENT = re.compile(r"[/\\\x00-\x1f\x7f-\x9f]")
_TEXT_TYPE = re.compile(r"text/|application/(.+\+)?(json|xml|yaml|javascript|x-ndjson|x-www-form-urlencoded)")


class HttpClient:
    """The connections of a worker to HTTP services, opened with the first call."""

    def __init__(self) -> None:
        self._clients: dict[bool, httpx2.AsyncClient] = {}

    def get(self, host: str) -> "httpx2.AsyncClient":
        """Return the client for a host. For services on this machine, the environment's proxies are not used, because a
        proxy elsewhere cannot reach these services and would read the credentials in plain http."""
        import httpx2

        is_here = is_loopback(host)
        if is_here not in self._clients:
            timeout = httpx2.Timeout(None, connect=CONNECT_SECONDS)
            client = httpx2.AsyncClient(timeout=timeout, follow_redirects=False, trust_env=not is_here)
            self._clients[is_here] = client
        return self._clients[is_here]

    async def aclose(self) -> None:
        for client in self._clients.values():
            await client.aclose()


class HttpTool:
    """A tool that sends one request to one service. GET runs without approval and may be repeated; other methods have
    effects, so they need approval and run once, unless the operator configures otherwise."""

    source = "http"
    category = ""
    hide_input = False
    label_arg = None
    traits = NO_TRAITS
    timeout_seconds = DEFAULT_TIMEOUT_SECONDS

    def __init__(
        self,
        name: str,
        url: str,
        client: HttpClient,
        *,
        method: Method = "GET",
        headers: Mapping[str, str] | None = None,
        description: str = "",
        input_schema: JsonObject | None = None,
        sends_authorization: bool = False,
    ) -> None:
        import httpx2  # noqa: F401 - with the tool that needs it, and not in its first call, while chats wait

        self.name = name
        self.description = description
        self.input_schema = input_schema or _schema_of(url)
        self.policy: Policy = "auto" if method in ("GET", "HEAD") else "ask"
        self.retry: Retry = "safe" if method in ("GET", "HEAD") else "once"
        self._method = method
        self._url = url
        self._client = client
        self._headers = dict(headers or {})
        self._sends_authorization = sends_authorization

    def __repr__(self) -> str:
        return f"<tool {self.name}: {self._method} {self._url}>"

    async def run(self, arguments: JsonObject, context: ToolContext) -> AsyncIterator[ToolOutput]:
        """Yield one result, the body of a 2xx answer.

        Raises:
            ToolFailed: an argument is missing or not a path segment, or the service cannot be reached or refuses.
        """
        url, rest = expand(self._url, arguments)
        headers = {**self._headers, "Accept-Encoding": "identity", "Idempotency-Key": context.idempotency_key}
        if self._sends_authorization:
            headers = {key: value for key, value in headers.items() if key.lower() != "authorization"}
            headers["Authorization"] = await _authorization(context)
        body = None
        if self._method in ("POST", "PUT", "PATCH"):
            body = msgspec.json.encode(rest)
            headers = {"Content-Type": "application/json", **headers}
        elif rest:
            url += ("&" if "?" in url else "?") + _query(rest)
        status, text = await self._exchange(url, headers, body)
        text = _redacted(text, headers)
        if not 200 <= status < 300:
            moved = " Redirects are not followed." if 300 <= status < 400 else ""
            raise ToolFailed(f"The service answered {status}.{moved} {text[:EXCERPT_MAX_CHARACTERS]}".rstrip())
        yield ToolResult(content=text or f"The service answered {status} without a body.")

    async def _exchange(self, url: str, headers: Mapping[str, str], body: bytes | None) -> tuple[int, str]:
        import httpx2

        try:
            client = self._client.get(urlsplit(url).hostname or "")
            async with client.stream(self._method, url, headers=dict(headers), content=body) as response:
                kind = response.headers.get("content-type", "text/plain").partition(";")[0].strip().lower()
                if response.is_success and not _TEXT_TYPE.match(kind):
                    raise ToolFailed(
                        f"The service answered {response.status_code} with {kind[:80]}, which is not text."
                    )
                if response.headers.get("content-encoding", "identity") != "identity":
                    raise ToolFailed("The service sent a compressed answer, which was not requested.")
                content = bytearray()
                async for chunk in response.aiter_raw():
                    content += chunk
                    if len(content) > RESPONSE_MAX_BYTES:
                        break
                text = bytes(content[:RESPONSE_MAX_BYTES]).decode(response.charset_encoding or "utf-8", "replace")
                note = f"\n[cut at {RESPONSE_MAX_BYTES} bytes]" if len(content) > RESPONSE_MAX_BYTES else ""
                return response.status_code, text + note
        except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError, LookupError) as wrong:
            # The message has only the error's type, since the text of some errors quotes the header that could not be
            # sent.
            raise ToolFailed(f"The request to the service failed ({type(wrong).__name__}).") from None


def expand(template: str, arguments: JsonObject) -> tuple[str, JsonObject]:
    """Return the URL with its placeholders filled in, and the remaining arguments.

    Raises:
        ToolFailed: an argument is missing, or would fill more than one path segment.
    """
    used: set[str] = set()
    path, question, query = template.partition("?")

    def segment(placeholder: re.Match[str]) -> str:
        value = _word(arguments, placeholder[1])
        used.add(placeholder[1])
        if not value or _IN_NO_SEGMENT.search(value):
            raise ToolFailed(
                f"The argument {placeholder[1]!r} must be one path segment: not empty, no slash, no controls."
            )
        return quote(value, safe="", errors="replace")

    def parameter(placeholder: re.Match[str]) -> str:
        used.add(placeholder[1])
        return quote(_word(arguments, placeholder[1]), safe="", errors="replace")

    path = _PLACE.sub(segment, path)
    if any(part in (".", "..") for part in urlsplit(path).path.split("/")):
        raise ToolFailed("A path segment cannot be '.' or '..'.")
    url = path + question + _PLACE.sub(parameter, query)
    return url, {key: value for key, value in arguments.items() if key not in used}


def _word(arguments: JsonObject, name: str) -> str:
    value = arguments.get(name)
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise ToolFailed(f"The argument {name!r} is missing, or is neither text nor a number.")
    return str(value)


def _query(values: JsonObject) -> str:
    """Encode a query. Lists become repeated names, objects become JSON, and null values are left out."""
    pairs: list[tuple[str, str]] = []
    for name, value in values.items():
        for each in value if isinstance(value, list) else [value]:
            if each is not None:
                pairs.append((name, each if isinstance(each, str) else msgspec.json.encode(each).decode()))
    return urlencode(pairs, quote_via=quote, errors="replace")


async def _authorization(context: ToolContext) -> str:
    value = await context.authorization()
    if value is None:
        raise ToolFailed(
            "The caller's authorization for this service is not held, or no longer; send the message again, with the "
            "header Threadcast-Forward-Authorization."
        )
    return value


def _redacted(text: str, headers: Mapping[str, str]) -> str:
    """Return `text` without the sent credentials, since some services quote the request."""
    for name, value in headers.items():
        if name.lower() in _HARMLESS_HEADERS or name in ("Accept-Encoding", "Idempotency-Key"):
            continue
        for secret in (value, value.rpartition(" ")[2]):
            if len(secret) >= SECRET_MIN_CHARACTERS:
                text = text.replace(secret, "***")
    return text


def _schema_of(url: str) -> JsonObject:
    """Return the schema of a tool for which no schema is configured. Its arguments are the placeholders of the URL."""
    names = list(dict.fromkeys(_PLACE.findall(url)))
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": names}
