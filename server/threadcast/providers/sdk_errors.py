"""Maps the exceptions of an SDK to failures of model calls.

OpenAI's and Anthropic's SDKs have the same exceptions, which `from_exception` maps for both. The SDKs wrap errors that
occur before the response. Errors of httpx2 that occur while the body is read are not wrapped (measured: a cut in
mid-stream is `httpx2.RemoteProtocolError`). Import this module only with an SDK.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import httpx2

from threadcast.providers.failures import Cause, model_failed, retry_after
from threadcast_protocol.wire.errors import ModelFailed

__all__ = ["HTTP_ERRORS", "SdkErrors", "from_exception"]

HTTP_ERRORS: tuple[type[Exception], ...] = (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL)


class SdkErrors(NamedTuple):
    """The exceptions that an SDK raises, and the function that maps them to failures. The second argument of the
    function is True if a part of the answer was already passed on."""

    exceptions: tuple[type[Exception], ...]
    failure: Callable[[Exception, bool], ModelFailed]


def from_exception(
    sdk: Any,  # Any: the module `openai` or `anthropic`
    cause: Callable[[Any], Cause],  # Any: the SDK's error for a response without success
    wrong: Exception,
    has_begun: bool,
    *,
    no_connection: tuple[type[Exception], ...] = (),
    sign_in: tuple[type[Exception], ...] = (),
) -> ModelFailed:
    """Return the failure for an exception of `sdk` or of httpx2. `no_connection` lists further exceptions that mean a
    failed connection, and `sign_in` lists exceptions that mean a refused sign-in."""
    detail = f"{type(wrong).__name__}: {wrong}"
    if isinstance(wrong, sdk.APIStatusError):
        return model_failed(
            cause(wrong),
            detail,
            body=wrong.body,
            status=wrong.status_code,
            retry_after_seconds=retry_after(wrong.response.headers),
        )
    is_timeout = isinstance(wrong, (sdk.APITimeoutError, httpx2.TimeoutException))
    if has_begun:
        return model_failed("silent" if is_timeout else "broken", detail)
    if is_timeout:
        return model_failed("timeout", detail)
    if isinstance(wrong, (sdk.APIConnectionError, httpx2.TransportError, *no_connection)):
        # The wrapped exception tells how the connection failed.
        return model_failed("connection", f"{detail} ({wrong.__cause__!r})")
    return model_failed("auth_failed" if isinstance(wrong, sign_in) else "refused", detail)
