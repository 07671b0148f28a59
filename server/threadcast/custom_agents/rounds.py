"""The arguments of an agent: the inputs of its run, and `Round`, the request of one round."""

import msgspec

from threadcast.providers.base import ToolSpec
from threadcast_protocol.wire.messages import JsonObject, Message
from threadcast_protocol.wire.principal import Principal

__all__ = ["Round", "RoundMessage", "RunInputs"]


class RoundMessage(Message, frozen=True, omit_defaults=True, kw_only=True):
    """A message of the chat in the form that an agent reads. `keep` are the bytes that the same agent stored with this
    answer by `Keep`, or b''. The bytes of the newest 256 answers are kept."""

    keep: bytes = b""


class RunInputs(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of a run that every agent receives."""

    chat_id: str
    run_id: str
    messages: list[RoundMessage]
    system: str
    tools: list[ToolSpec]
    params: JsonObject
    context: JsonObject
    metadata: JsonObject
    principal: Principal


class Round(RunInputs, frozen=True, kw_only=True):
    """The request to an agent in one round.

    `messages` is the active path of the chat as a model would read it: long histories are shortened as the profile
    requires, and results of tools have the role "tool". `system` is the system prompt that the profile's sections have
    written. `tools` are the offered tools. `params` are those parameters that the command, the thread or the profile
    sets, such as `model` and `temperature`. `context` and `metadata` are the request context and the thread's metadata.
    `principal` is the person whose command began the run. `number` counts the rounds of the run from 0.

    `shown` is '' unless the round continues an answer: after a crash with `on_owner_loss` = `continue`, or for the
    command `continue_message`. In these cases `shown` is the text that people have seen, and the last two messages are
    that text and an instruction to continue it. If the agent repeats that text, the repetition is left out.
    """

    number: int
    shown: str = ""
