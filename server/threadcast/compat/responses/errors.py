"""Errors of the endpoints of Responses, in OpenAI's form."""

from threadcast.api.operation import LIMITED, NOT_FOUND, UNAVAILABLE
from threadcast.compat.responses.response_stream import error_object
from threadcast_protocol.wire.http import Failure
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["ERRORS", "READ", "error_form"]


def error_form(failure: Failure, status: int) -> JsonObject:
    """Return the body of an error, as OpenAI's clients read it."""
    return error_object(failure.code, failure.detail, failure.path)


ERRORS = {400: "`bad_request` or `invalid_content`.", 413: "`too_large`."} | NOT_FOUND | LIMITED | UNAVAILABLE
READ = NOT_FOUND | UNAVAILABLE
