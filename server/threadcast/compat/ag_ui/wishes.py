"""Chooses the commands for one AG-UI request, depending on the present state of its chat. Pure.

Clients resend all messages that they know. Messages of the user are new if the chat does not have their ids. All new
messages together become one message of the chat. Results and answers have an effect only if the chat still waits for
them.
"""

import secrets
from collections.abc import Sequence
from typing import NamedTuple

from threadcast.compat.ag_ui.bodies import Content, RunInput, SentMessage, content_of, result_of
from threadcast.compat.ag_ui.history import restored
from threadcast.compat.ag_ui.interrupts import decisions_in
from threadcast.compat.ag_ui.message_ids import IDS_KEY, request_id_of, restored_id_of
from threadcast.compat.base import AWAITS_DECISION
from threadcast_protocol.fold.state import ChatState
from threadcast_protocol.wire.commands import Command, IdeToolResult, RestoreMessages, ToolDecisions, UserMessage
from threadcast_protocol.wire.errors import Conflict
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["Wish", "wish_of"]


class Wish(NamedTuple):
    """The effect of a request. `continues` are the commands that continue the open run; `begins` are the commands that
    begin a chat or a run. `request_id` is the id of the new message, '' without a new message. `message_at` is the
    index of the new message in the body. `given` are those messages of the client that are not on the path yet."""

    continues: list[Command]
    begins: list[Command]
    request_id: str = ""
    message_at: int = 0
    given: Sequence[SentMessage] = ()


def wish_of(asked: RunInput, state: ChatState | None, params: JsonObject) -> Wish:
    """Return the commands for the request. `state` is None for a new chat; `params` are parameters of the run.

    Raises:
        BadRequest: content of a message or an answer has a wrong form.
        Conflict: a new message came while the chat waits for a person.
    """
    found = _new_messages(asked, state)
    continues = [] if state is None else _answers(asked, state)
    answered = {each.tool_call_id for each in continues if isinstance(each, IdeToolResult)}
    given = [each for each in asked.messages if each.role == "tool" and each.tool_call_id in answered]
    given += [message for _, message in found]
    if not found:
        return Wish(continues, [], given=given)
    at, last = found[-1]
    request_id = request_id_of(last.id)
    if state is not None and any(item.client_request_id == request_id for item in state.runtime.queued_items):
        return Wish(continues, [], request_id, at, given)
    if state is not None and state.runtime.pause_reasons:
        decided = sum(len(each.decisions) for each in continues if isinstance(each, ToolDecisions))
        if decided < len(state.runtime.pause_reasons):
            raise Conflict(AWAITS_DECISION)
    begins: list[Command] = []
    if state is None:
        first = found[-1][0]
        found = found[-1:]
        if history := restored(asked.messages[:first]):
            begins.append(RestoreMessages(client_request_id=_new_request_id(), messages=history))
    context = asked.untrusted_context
    if len(found) > 1:
        context[IDS_KEY] = [message.id for _, message in found]
    is_stuck = state is not None and not continues and _waits_for_clients_alone(state)
    message = UserMessage(
        client_request_id=request_id,
        content=_joined([content_of(message, f"/messages/{index}") for index, message in found]),
        context=context,
        params={"merge_queued": False, **params},  # a message with parameters is never merged with others
        tools=asked.declared_tools,
        interrupt=is_stuck,
    )
    return Wish(continues, [*begins, message], request_id, at, given)


def _new_messages(asked: RunInput, state: ChatState | None) -> list[tuple[int, SentMessage]]:
    """Return the messages of the user that the chat does not have, each once, with their indexes. A message that waits
    in the queue counts as new, but is not posted again."""
    seen: set[str] = set()
    for node in state.nodes.values() if state is not None else ():
        seen |= {node.message_id, node.client_request_id or ""}
        ids = node.context.get(IDS_KEY)
        seen |= {request_id_of(each) for each in ids if isinstance(each, str)} if isinstance(ids, list) else set()
    found: list[tuple[int, SentMessage]] = []
    for index, message in enumerate(asked.messages):
        keys = {request_id_of(message.id), restored_id_of(message.id)}
        if message.role == "user" and not keys & seen:
            found.append((index, message))
        if message.role == "user":
            seen |= keys
    return found


def _answers(asked: RunInput, state: ChatState) -> list[Command]:
    """Return the commands for the results and answers that the chat waits for."""
    given = {
        message.tool_call_id: (index, message)
        for index, message in enumerate(asked.messages)
        if message.role == "tool" and message.tool_call_id
    }
    commands: list[Command] = []
    for call in state.runtime.ide_calls:
        if call.tool_call_id in given:
            index, message = given[call.tool_call_id]
            text, is_failed = result_of(message, f"/messages/{index}")
            commands.append(
                IdeToolResult(
                    client_request_id=_new_request_id(),
                    tool_call_id=call.tool_call_id,
                    content=text,
                    tool_failed=is_failed,
                )
            )
    decisions = decisions_in(asked.resume or (), state.runtime.pause_reasons)
    if decisions:
        commands.append(ToolDecisions(client_request_id=_new_request_id(), decisions=decisions))
    return commands


def _waits_for_clients_alone(state: ChatState) -> bool:
    """Return whether the open run waits only for results that this client does not send. The client's new message then
    ends the run, which would otherwise wait until the tools' deadline. A call that an editor has claimed is treated as
    running."""
    calls = state.runtime.ide_calls
    waiting = {call.tool_call_id for call in calls if call.claimed_by is None}
    return (
        state.runtime.state == "waiting_ide"
        and len(waiting) == len(calls)
        and all(tool.tool_call_id in waiting for tool in state.runtime.tools)
    )


def _joined(contents: Sequence[Content]) -> Content:
    if len(contents) == 1:
        return contents[0]
    return [
        part
        for content in contents
        for part in ([{"type": "text", "text": content}] if isinstance(content, str) else content)
    ]


def _new_request_id() -> str:
    """Return a new request id. A repeated request may use another id, because the chat accepts each answer only
    once."""
    return f"ag-ui-{secrets.token_hex(12)}"
