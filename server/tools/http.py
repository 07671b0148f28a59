"""HTTP services as tools (TOOL-6, TOOL-7): arguments become a path, a query or a JSON body; the answer is the result.

A tool knows one origin for good: arguments fill single path segments and query values, and no redirect is followed, so
neither a model nor a service can lead credentials anywhere else. What credentials were sent is taken out of whatever
comes back, and errors name their kind only, since their texts may quote headers. The client is shared by all tools and
closed with the worker.
"""

import re
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from protocol.errors import ToolFailed
from protocol.messages import JsonObject
from server.tools.base import DEFAULT_TIMEOUT_SECONDS, Policy, Retry, ToolContext, ToolOutput, ToolResult
from server.tools.traits import NO_TRAITS

if TYPE_CHECKING:
    import httpx2

__all__ = ["EXCERPT_MAX_CHARACTERS", "RESPONSE_MAX_BYTES", "HttpClient", "HttpTool", "Method", "expand"]

Method: TypeAlias = Literal["GET", "HEAD", "DELETE", "POST", "PUT", "PATCH"]

RESPONSE_MAX_BYTES = 1024 * 1024
"""Four times what a model is shown of a result; an answer is cut there and its connection closed."""

EXCERPT_MAX_CHARACTERS = 500
"""Of the body of a failure: its reason stands at the beginning."""

CONNECT_SECONDS = 5.0
"""To reach a service; the rest of a call's time is the tool's timeout, which the runner keeps."""

SECRET_MIN_CHARACTERS = 8
"""Shorter values are not looked for in answers: they would be found in innocent words."""

_HARMLESS_HEADERS = frozenset({"accept", "accept-language", "content-type", "user-agent"})
_PLACE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_IN_NO_SEGMENT = re.compile(r"[/\\\x00-\x1f\x7f-\x9f]")
_TEXT_TYPE = re.compile(r"text/|application/(.+\+)?(json|xml|yaml|javascript|x-ndjson|x-www-form-urlencoded)")


class HttpClient:
    """The connections of a worker, opened with the first call."""

    def __init__(self) -> None:
        self._client: httpx2.AsyncClient | None = None

    def get(self) -> "httpx2.AsyncClient":
        import httpx2

        if self._client is None:
            timeout = httpx2.Timeout(None, connect=CONNECT_SECONDS)
            self._client = httpx2.AsyncClient(timeout=timeout, follow_redirects=False)
        return self._client

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()


class HttpTool:
    """One request to one service. GET is carried out unasked and may be repeated; the other methods have effects, so
    they ask first and run once, unless the operator says otherwise."""

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
        """One result: the body of a 2xx answer.

        Raises:
            ToolFailed: an argument is missing or is no path segment, the service cannot be reached, or refuses.
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
        yield ToolResult(content=text or f"The service answered {status} and nothing else.")

    async def _exchange(self, url: str, headers: Mapping[str, str], body: bytes | None) -> tuple[int, str]:
        import httpx2

        try:
            async with self._client.get().stream(self._method, url, headers=dict(headers), content=body) as response:
                kind = response.headers.get("content-type", "text/plain").partition(";")[0].strip().lower()
                if response.is_success and not _TEXT_TYPE.match(kind):
                    raise ToolFailed(f"The service answered {response.status_code} with {kind[:80]}, which is no text.")
                if response.headers.get("content-encoding", "identity") != "identity":
                    raise ToolFailed("The service answered in a compressed form that was not asked for.")
                content = bytearray()
                async for chunk in response.aiter_raw():
                    content += chunk
                    if len(content) > RESPONSE_MAX_BYTES:
                        break
                text = bytes(content[:RESPONSE_MAX_BYTES]).decode(response.charset_encoding or "utf-8", "replace")
                note = f"\n[cut at {RESPONSE_MAX_BYTES} bytes]" if len(content) > RESPONSE_MAX_BYTES else ""
                return response.status_code, text + note
        except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError, LookupError) as wrong:
            # Only its kind: the text of some quotes the header that could not be sent.
            raise ToolFailed(f"The service could not be asked ({type(wrong).__name__}).") from None


def expand(template: str, arguments: JsonObject) -> tuple[str, JsonObject]:
    """The URL with its arguments in their places, and the arguments that have none there.

    Raises:
        ToolFailed: one is missing, or would be more than a segment of the path.
    """
    used: set[str] = set()
    path, question, query = template.partition("?")

    def segment(place: re.Match[str]) -> str:
        value = _word(arguments, place[1])
        used.add(place[1])
        if not value or _IN_NO_SEGMENT.search(value):
            raise ToolFailed(f"The argument {place[1]!r} must be one path segment: not empty, no slash, no controls.")
        return quote(value, safe="", errors="replace")

    def parameter(place: re.Match[str]) -> str:
        used.add(place[1])
        return quote(_word(arguments, place[1]), safe="", errors="replace")

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
    """Lists as repeated names, objects as JSON, nothing for null."""
    pairs: list[tuple[str, str]] = []
    for name, value in values.items():
        for each in value if isinstance(value, list) else [value]:
            if each is not None:
                pairs.append((name, each if isinstance(each, str) else msgspec.json.encode(each).decode()))
    return urlencode(pairs, quote_via=quote, errors="replace")


async def _authorization(context: ToolContext) -> str:
    value = await context.authorization()
    if value is None:
        raise ToolFailed("The caller's authorization is no longer held; send the message again.")
    return value


def _redacted(text: str, headers: Mapping[str, str]) -> str:
    """`text` without the credentials that were sent: some services quote what they were asked."""
    for name, value in headers.items():
        if name.lower() in _HARMLESS_HEADERS or name in ("Accept-Encoding", "Idempotency-Key"):
            continue
        for secret in (value, value.rpartition(" ")[2]):
            if len(secret) >= SECRET_MIN_CHARACTERS:
                text = text.replace(secret, "***")
    return text


def _schema_of(url: str) -> JsonObject:
    """Of a tool whose operator named none: the places of its URL."""
    names = list(dict.fromkeys(_PLACE.findall(url)))
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": names}
