"""What a graph asks people: approvals for the requests of LangChain's human-in-the-loop middleware, else questions."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
from langgraph.types import Interrupt

from threadcast.custom_agents.pieces import Call
from threadcast.custom_agents.seam import Approval, Seam
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["answer"]

ACTIONS_MAX = 128
"""The most actions that one interrupt asks about, as many as calls in an answer."""

TEXT_MAX_CHARACTERS = 4_000


async def answer(
    seam: Seam, key: str, interrupt: Interrupt, calls: Mapping[str, str], open_calls: list[tuple[str, JsonObject, str]]
) -> Any:  # Any: what the graph is resumed with
    """Ask, and return what the graph is resumed with. `open_calls` are the shown calls that have no result: name,
    arguments, id.

    Raises:
        Rejected: a person did not want to answer a question.
    """
    value = interrupt.value
    if isinstance(value, dict) and isinstance(value.get("action_requests"), list):
        return {"decisions": await _decisions(seam, key, value, open_calls)}
    return await _question(seam, key, value, interrupt)


async def _decisions(
    seam: Seam, key: str, value: JsonObject, open_calls: list[tuple[str, JsonObject, str]]
) -> list[JsonObject]:
    """Ask about each action, all at the same time, and return the decisions in their order."""
    configs = [each for each in value.get("review_configs") or () if isinstance(each, dict)]
    allowed = {each.get("action_name"): set(each.get("allowed_decisions") or ()) for each in configs}
    free = list(open_calls)
    asked: list[tuple[str, JsonObject, str]] = []
    for number, action in enumerate(value["action_requests"][:ACTIONS_MAX]):
        name, args = str(action.get("name")), action.get("args") or {}
        fitting = next((each for each in free if each[0] == name and each[1] == args), None)
        if fitting is not None:
            free.remove(fitting)
            asked.append(fitting)
        else:
            asked.append((name, args, await _shown(seam, f"{key}-{number}", name, args)))
    approvals = await asyncio.gather(*(seam.approve(call_id) for _, _, call_id in asked))
    return [
        _decision(approval, name, args, allowed.get(name, set()))
        for approval, (name, args, _) in zip(approvals, asked, strict=True)
    ]


async def _shown(seam: Seam, key: str, name: str, args: JsonObject) -> str:
    """Show an action that no message of a model has shown, and return the id of its call."""

    async def pieces() -> AsyncIterator[object]:
        yield Call(name, args)

    shown = await seam.message(key, pieces)
    return shown.calls[0].id


def _decision(approval: Approval, name: str, args: JsonObject, allowed: set[str]) -> JsonObject:
    """Return a decision in LangChain's form. Edited arguments that the graph does not allow are a rejection."""
    if approval.accepted and approval.arguments is not None and approval.arguments != args:
        if "edit" in allowed:
            return {"type": "edit", "edited_action": {"name": name, "args": approval.arguments}}
        wanted = msgspec.json.encode(approval.arguments).decode()
        return {"type": "reject", "message": f"The person wants other arguments: {wanted}"}
    if approval.accepted:
        return {"type": "approve"}
    return {"type": "reject", **({"message": approval.note} if approval.note else {})}


async def _question(seam: Seam, key: str, value: Any, interrupt: Interrupt) -> Any:  # Any: JSON
    """Ask a question: the interrupt's text, with its options or the schema of its answer."""
    told = value if isinstance(value, dict) else {}
    text = told.get("question") or told.get("message") or told.get("description") or value
    text = text if isinstance(text, str) else msgspec.json.encode(msgspec.to_builtins(text, enc_hook=str)).decode()
    options = told.get("options")
    schema = interrupt.response_schema if isinstance(interrupt.response_schema, dict) else None
    try:
        if isinstance(options, list) and options and all(isinstance(each, str) for each in options):
            return await seam.ask(key, text[:TEXT_MAX_CHARACTERS], options)
        return await seam.ask(key, text[:TEXT_MAX_CHARACTERS], schema=schema)
    except ValueError:
        return await seam.ask(f"{key}-text", text[:TEXT_MAX_CHARACTERS].strip() or "The agent waits for an answer.")
