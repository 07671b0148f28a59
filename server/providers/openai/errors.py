"""What the OpenAI client, its HTTP library and its servers raise or answer, mapped to our causes. One table.

Two worlds speak here: the SDK wraps what goes wrong before the response, httpx2 raises unwrapped while its body is read
(measured: a cut in mid-stream is `httpx2.RemoteProtocolError`). Import it only where the SDK is wanted: importing
`openai` costs half a second.
"""

import re

import httpx2
import openai

from protocol.errors import ModelFailed
from server.providers.failures import Cause, model_failed, retry_after
from server.providers.openai.chat_wire import ErrorBody

__all__ = ["FOREIGN_ERRORS", "from_error_body", "from_exception"]

FOREIGN_ERRORS = (openai.OpenAIError, httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL)

_BY_STATUS: dict[int, Cause] = {
    401: "auth_failed",
    403: "auth_failed",
    404: "unknown_model",
    408: "timeout",
    429: "rate_limited",
    504: "timeout",
}

_BY_WORD: dict[str, Cause] = {
    "authentication_error": "auth_failed",
    "context_length_exceeded": "context_overflow",
    "exceed_context_size_error": "context_overflow",
    "insufficient_quota": "rate_limited",
    "invalid_api_key": "auth_failed",
    "model_not_found": "unknown_model",
    "permission_error": "auth_failed",
    "rate_limit_error": "rate_limited",
    "rate_limit_exceeded": "rate_limited",
    "server_error": "server_error",
}
"""`code` or `type` of an error object: OpenAI's and llama.cpp's words, and those gateways pass on."""

_OVERFLOW = re.compile(
    r"context (length|window|size)|too many tokens|prompt is too long|input is too long|maximum.{0,20}tokens", re.I
)
"""vLLM, Ollama and gateways say it only in the sentence of a 400 or 413."""


def from_exception(wrong: Exception, *, has_begun: bool) -> ModelFailed:
    """The failure behind a foreign exception. `has_begun`: something of the answer was already passed on."""
    detail = f"{type(wrong).__name__}: {wrong}"
    if isinstance(wrong, openai.APIStatusError):
        body = ErrorBody(message=str(wrong), type=wrong.type, code=wrong.code)
        return model_failed(
            _cause(wrong.status_code, body),
            detail,
            body=wrong.body,
            status=wrong.status_code,
            retry_after_seconds=retry_after(wrong.response.headers),
        )
    is_timeout = isinstance(wrong, openai.APITimeoutError | httpx2.TimeoutException)
    if has_begun:
        return model_failed("silent" if is_timeout else "broken", detail)
    if is_timeout:
        return model_failed("timeout", detail)
    if isinstance(wrong, openai.APIConnectionError | httpx2.TransportError):
        # The wrapped exception says which of the many ways a connection can fail it was.
        return model_failed("connection", f"{detail} ({wrong.__cause__!r})")
    return model_failed("refused", detail)


def from_error_body(error: ErrorBody | str, *, has_begun: bool) -> ModelFailed:
    """The failure that a server reports inside its stream."""
    body = ErrorBody(message=error) if isinstance(error, str) else error
    detail = f"error in the stream: {body.code} {body.type}: {body.message}"
    if has_begun:
        return model_failed("broken", detail, body=body.message)
    code = str(body.code)
    status = int(code) if len(code) == 3 and code.isdecimal() else 500  # some put the status there, as text or number
    return model_failed(_cause(status, body), detail, body=body.message)


def _cause(status: int, body: ErrorBody) -> Cause:
    for word in (body.code, body.type):
        if isinstance(word, str) and word in _BY_WORD:
            return _BY_WORD[word]
    if status in (400, 413, 422, 500) and body.message and _OVERFLOW.search(body.message):
        return "context_overflow"
    return _BY_STATUS.get(status) or ("server_error" if status >= 500 else "refused")
