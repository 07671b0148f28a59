"""One model call, put together from a chat's state: system prompt, history, tools, parameters. Pure.

Parameters are layered: command before thread before profile before the provider's own (SET-1). The system prompt never
leaves the server by any other way than this request.
"""

from protocol.messages import JsonObject
from protocol.params import effective
from protocol.state import ChatState
from server.agent.history import model_view
from server.agent.profile import ChatTools
from server.providers.base import ModelParams, Request

__all__ = ["build_request"]

_PARAMS = tuple(name for name in ModelParams.__struct_fields__ if name != "extra_body")


def build_request(
    state: ChatState, tools: ChatTools, provider: str, model: str, *, with_tools: bool, prefix: str = ""
) -> Request:
    """The request for the round that is open. `model` is as its `provider` knows it; `prefix` is text of this very
    answer that is shown already."""
    run = state.private.run
    defaults = tools.profile.params
    values = {name: effective(state, name, defaults).value for name in (*_PARAMS, "custom_instructions")}
    instructions = values.pop("custom_instructions") or ""
    chosen: JsonObject = {name: value for name, value in values.items() if value is not None}
    return Request(
        model=model,
        messages=model_view(state, defaults),
        system=_system_prompt(tools, instructions),
        tools=tools.specs() if with_tools else [],
        params=ModelParams(**chosen),
        prefix=prefix,
        user=run.principal.id if run else "",
        provider_data={
            key: echo.data for key, echo in state.private.provider_data.items() if echo.provider == provider
        },
    )


def _system_prompt(tools: ChatTools, custom_instructions: str) -> str:
    sections = [tools.profile.system_prompt, custom_instructions]
    return "\n\n".join(section.strip() for section in sections if section.strip())
