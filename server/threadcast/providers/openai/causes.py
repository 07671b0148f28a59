"""Maps errors of OpenAI's servers and of compatible servers to the causes of `failures.py`. Pure."""

import re

from threadcast.providers.failures import Cause, CauseTable, model_failed
from threadcast.providers.openai.chat_wire import ErrorBody
from threadcast_protocol.wire.errors import ModelFailed

__all__ = ["cause_of", "from_error_body"]

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
"""Causes by the `code` or `type` of an error object, as OpenAI, llama.cpp and gateways send it."""

_OVERFLOW = re.compile(
    r"context (length|window|size)|too many tokens|prompt is too long|input is too long|maximum.{0,20}tokens", re.I
)
"""vLLM, Ollama and gateways report an overflow only in the message of a 400 or 413."""

_TABLE = CauseTable(_BY_STATUS, _BY_WORD, _OVERFLOW, (400, 413, 422, 500))


def cause_of(status: int, body: ErrorBody) -> Cause:
    return _TABLE.cause(status, body.message, body.code, body.type)


def from_error_body(error: ErrorBody | str, *, has_begun: bool) -> ModelFailed:
    """Return the failure that a server reports inside its stream."""
    body = ErrorBody(message=error) if isinstance(error, str) else error
    detail = f"error in the stream: {body.code} {body.type}: {body.message}"
    code = str(body.code)
    status = int(code) if len(code) == 3 and code.isdecimal() else 500  # gateways put the status into `code`
    return model_failed("broken" if has_begun else cause_of(status, body), detail, body=body.message)
