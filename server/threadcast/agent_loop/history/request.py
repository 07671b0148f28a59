"""Builds the request of a model call from a chat's state: system prompt, history, tools and parameters.

The functions are pure. A parameter's value is taken from the first of these that sets it: the command, the thread, the
profile, the provider's defaults (SET-1).
"""

from collections.abc import Sequence

from threadcast.agent_loop.answer.continuation import INSTRUCTION
from threadcast.agent_loop.history.kept_view import KeptView
from threadcast.agent_loop.history.view import messages_of, view_of
from threadcast.chat.owner_state import OwnerState
from threadcast.chat.params import all_set
from threadcast.profiles.context import context_of, interaction_of, payloads_of
from threadcast.profiles.profile import ChatTools
from threadcast.profiles.prompt import PayloadLine, PromptContext, system_prompt
from threadcast.providers.base import ModelParams, Request, RunInfo, ToolSpec
from threadcast_protocol.fold.reducer import drafted_message
from threadcast_protocol.wire.messages import JsonObject, Message

__all__ = ["build_request", "prompt_context"]

_PARAMS = tuple(name for name in ModelParams.__struct_fields__ if name != "extra_body")
"""The parameters that are passed to the provider. The server has no defaults for these parameters, so the provider
chooses the value of a parameter that is not set."""


_GO_ON = Message(role="user", content=INSTRUCTION, message_id="continue", hidden=True, kind="continue")


def build_request(
    state: OwnerState,
    tools: ChatTools,
    provider: str,
    model: str,
    *,
    with_tools: bool,
    shown: str = "",
    prefills: bool = False,
    kept: KeptView | None = None,
) -> Request:
    """Return the request for the open round. `model` is the name that `provider` uses for the model. `shown` is the
    text of this answer that people have already seen. If `prefills` is True, the provider gets `shown` as the beginning
    of its answer. Otherwise the provider gets the text as a message, followed by an instruction to continue. `kept` is
    a cache of the view of earlier messages."""
    run = state.private.run
    defaults = tools.profile.params
    values = {name: found.value for name, found in all_set(state, defaults).items()}
    instructions = values.get("custom_instructions") or ""
    offered = tools.specs() if with_tools else []
    chosen: JsonObject = {name: values[name] for name in _PARAMS if name in values}
    view = view_of(state, defaults, kept)
    messages, prefix = messages_of(state, view), ""
    if shown and state.draft is not None:
        if prefills:
            prefix = shown.rstrip()
        else:
            messages += [drafted_message(state.draft), _GO_ON]
    return Request(
        model=model,
        messages=messages,
        unchanged=view.unchanged,
        system=system_prompt(tools.profile.sections, prompt_context(state, tools, offered, instructions)),
        tools=offered,
        params=ModelParams(**chosen),
        prefix=prefix,
        user=run.principal.id if run else "",
        provider_data={
            key: echo.data for key, echo in state.private.provider_data.items() if echo.provider == provider
        },
        run=_run_info(state, defaults, values, shown),
    )


def _run_info(state: OwnerState, defaults: JsonObject, values: JsonObject, shown: str) -> RunInfo | None:
    run = state.private.run
    if run is None:
        return None
    return RunInfo(
        chat_id=state.chat_id,
        run_id=run.run_id,
        round=run.round,
        principal=run.principal,
        params=values,
        context=context_of(state, defaults),
        metadata=state.thread.metadata or {},
        shown=shown,
    )


def prompt_context(
    state: OwnerState, tools: ChatTools, offered: Sequence[ToolSpec], custom_instructions: str
) -> PromptContext:
    """Return the context from which the sections of the system prompt are written. `offered` are the tools of this
    request."""
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
        payload_types=profile.payload_types,
        actions=profile.actions,
        custom_instructions=[profile.custom_instructions, custom_instructions],
        guidelines=profile.guidelines,
    )
