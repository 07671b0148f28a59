"""The errors of OpenAI's API: `{"error": {message, type, param, code}}`, as `openai._exceptions` reads them."""

from threadcast_protocol.wire.http import Failure as ErrorBody
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["error_of", "openai_error"]

_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
"""The types of errors by HTTP status; other statuses below 500 are `invalid_request_error`, the rest `server_error`."""


def openai_error(message: str, code: str, status: int, param: str | None = None) -> JsonObject:
    """Return an error as OpenAI's clients read it. `param` is the path of the wrong value, as `messages.0.content`."""
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def error_of(failed: ErrorBody, status: int) -> JsonObject:
    """Return the body of an error answer (an `ErrorForm`)."""
    param = failed.path.strip("/").replace("/", ".") if failed.path else None
    is_model = failed.code == "not_found" and param == "model"
    return openai_error(failed.detail, "model_not_found" if is_model else failed.code, status, param)
