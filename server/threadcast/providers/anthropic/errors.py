"""The exceptions of the Anthropic client, and of Google's sign-in on Vertex AI. Import this module only with the SDK:
importing `anthropic` costs a second.
"""

from contextlib import suppress

import anthropic

from threadcast.providers.anthropic.causes import cause_of
from threadcast.providers.failures import Cause
from threadcast.providers.sdk_errors import HTTP_ERRORS, SdkErrors, from_exception
from threadcast_protocol.wire.errors import ModelFailed

__all__ = ["ERRORS"]

_sign_in: tuple[type[Exception], ...] = ()
_no_connection: tuple[type[Exception], ...] = ()
with suppress(ModuleNotFoundError):  # installed with the extra anthropic-vertex
    from google.auth.exceptions import GoogleAuthError, TransportError

    _sign_in, _no_connection = (GoogleAuthError,), (TransportError,)


def _cause(wrong: anthropic.APIStatusError) -> Cause:
    return cause_of(wrong.status_code, str(wrong), wrong.type or "")


def _failure(wrong: Exception, has_begun: bool) -> ModelFailed:
    return from_exception(anthropic, _cause, wrong, has_begun, no_connection=_no_connection, sign_in=_sign_in)


ERRORS = SdkErrors((anthropic.AnthropicError, *HTTP_ERRORS, *_sign_in), _failure)
