"""One model call, put together from a chat's state: system prompt, history, tools, parameters. Pure.

Parameters are layered: command before thread before profile before the provider's own (SET-1). The system prompt never
leaves the server by any other way than this request.
"""

from collections.abc import Sequence

from protocol.messages import JsonObject, Message
from protocol.params import all_set
from protocol.reducer import drafted_message
from protocol.state import ChatState
from server.agent.answer.continuation import INSTRUCTION
from server.agent.history.view import model_view
from server.agent.place.context import context_of, interaction_of, payloads_of
from server.agent.place.profile import ChatTools
from server.agent.place.prompt import PayloadLine, PromptContext, system_prompt
from server.providers.base import ModelParams, Request, ToolSpec

__all__ = ["build_request", "prompt_context"]

_PARAMS = tuple(name for name in ModelParams.__struct_fields__ if name != "extra_body")
"""None of them has a default of the server's own: what nobody has set is the provider's to choose."""


_GO_ON = Message(role="user", content=INSTRUCTION, message_id="continue", hidden=True, kind="continue")


def build_request(
    state: ChatState,
    tools: ChatTools,
    provider: str,
    model: str,
    *,
    with_tools: bool,
    shown: str = "",
    prefills: bool = False,
) -> Request:
    """Return the request for the open round. `model` is the name that `provider` uses; `shown` is text of this answer
    that people have seen already. A provider that `prefills` gets `shown` as the beginning of its answer. Any other
    provider gets it as a message, and an instruction to go on."""
    run = state.private.run
    defaults = tools.profile.params
    values = {name: found.value for name, found in all_set(state, defaults).items()}
    instructions = values.get("custom_instructions") or ""
    offered = tools.specs() if with_tools else []
    chosen: JsonObject = {name: values[name] for name in _PARAMS if name in values}
    messages, prefix = model_view(state, defaults), ""
    if shown and state.draft is not None:
        if prefills:
            prefix = shown.rstrip()
        else:
            messages += [drafted_message(state.draft), _GO_ON]
    return Request(
        model=model,
        messages=messages,
        system=system_prompt(tools.profile.sections, prompt_context(state, tools, offered, instructions)),
        tools=offered,
        params=ModelParams(**chosen),
        prefix=prefix,
        user=run.principal.id if run else "",
        provider_data={
            key: echo.data for key, echo in state.private.provider_data.items() if echo.provider == provider
        },
    )


def prompt_context(
    state: ChatState, tools: ChatTools, offered: Sequence[ToolSpec], custom_instructions: str
) -> PromptContext:
    """What the prompt's sections are written from. `offered` are the tools of this very request."""
    run = state.private.run
    profile = tools.profile
    return PromptContext(
        identity=profile.system_prompt,
        context=context_of(state, profile.params),
        highlight=profile.highlight,
        interaction=interaction_of(state),
        user=run.principal.id if run is not None else "",
        metadata=state.thread.metadata or {},
        roles=sorted(run.principal.roles) if run is not None else (),
        scope=tools.scope,
        payloads=[
            PayloadLine(payload.payload_id, payload.payload_type, payload.summary)
            for payload in payloads_of(state).values()
        ],
        tools=offered,
        payload_types=tools.payload_types,
        actions=tools.actions,
        custom_instructions=[profile.custom_instructions, custom_instructions],
        guidelines=profile.guidelines,
    )
