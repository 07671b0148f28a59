"""The exceptions of the OpenAI client. Import this module only with the SDK: importing `openai` costs half a second."""

import openai

from threadcast.providers.failures import Cause
from threadcast.providers.openai.causes import cause_of
from threadcast.providers.openai.chat_wire import ErrorBody
from threadcast.providers.sdk_errors import HTTP_ERRORS, SdkErrors, from_exception
from threadcast_protocol.wire.errors import ModelFailed

__all__ = ["ERRORS"]


def _cause(wrong: openai.APIStatusError) -> Cause:
    return cause_of(wrong.status_code, ErrorBody(message=str(wrong), type=wrong.type, code=wrong.code))


def _failure(wrong: Exception, has_begun: bool) -> ModelFailed:
    return from_exception(openai, _cause, wrong, has_begun)


ERRORS = SdkErrors((openai.OpenAIError, *HTTP_ERRORS), _failure)
