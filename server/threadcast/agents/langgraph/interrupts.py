"""The questions of a graph to people: approvals for the requests of LangChain's human-in-the-loop middleware, and other
questions.

The middleware asks about all calls of a message at once (`action_requests`), or about each call as it runs
(`tool_approval`). A tool that only a person can answer (`respond` without `approve`) is shown as a question.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from langgraph.types import Interrupt

from threadcast.agents.langgraph.shown import arguments_of, show_call
from threadcast.custom_agents.errors import Rejected
from threadcast.custom_agents.seam import Approval, Seam, ShownCall
from threadcast_protocol.wire.errors import ModelFailed
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["ACTIONS_MAX", "People", "allowed_in", "decision_of"]

ACTIONS_MAX = 128
"""The maximum actions in one interrupt, the same as the maximum calls in an answer."""

TEXT_MAX_CHARACTERS = 4_000

DECISIONS = frozenset({"approve", "edit", "reject", "respond"})
"""The decisions of the middleware (langchain.agents.middleware.human_in_the_loop)."""


class People:
    """Asks the people of the chat. The names of tools in the chat begin with `prefix`; `calls` maps the model's ids to
    the shown calls, and `open_calls` are the shown calls without a result."""

    def __init__(
        self, seam: Seam, prefix: str, calls: Mapping[str, ShownCall], open_calls: Sequence[ShownCall]
    ) -> None:
        self._seam = seam
        self._prefix = prefix
        self._calls = calls
        self._free = list(open_calls)

    async def answer(self, interrupt: Interrupt) -> Any:  # Any: what the graph is resumed with
        """Ask people about an interrupt, and return the value with which the graph is resumed.

        Raises:
            Rejected: the person declined to answer a question.
            ModelFailed: the graph asks about too many actions.
        """
        value = interrupt.value
        if isinstance(value, dict) and isinstance(value.get("action_requests"), list):
            return {"decisions": await self._decisions(interrupt.id, value)}
        if isinstance(value, dict) and value.get("type") == "tool_approval" and isinstance(value.get("name"), str):
            known = self._calls.get(str(value.get("tool_call_id")))
            return await self._decide(interrupt.id, value, allowed_in(interrupt.response_schema), known)
        return await self._question(interrupt.id, value, interrupt.response_schema)

    async def _decisions(self, key: str, value: JsonObject) -> list[JsonObject]:
        """Ask about all actions at the same time, and return the decisions in the order of the actions."""
        actions = [each for each in value["action_requests"] if isinstance(each, dict)]
        if len(actions) > ACTIONS_MAX:
            raise ModelFailed("limit", f"The graph asks about {len(actions)} actions at once, more than {ACTIONS_MAX}.")
        configs = [each for each in value.get("review_configs") or () if isinstance(each, dict)]
        allowed = {each.get("action_name"): set(each.get("allowed_decisions") or ()) for each in configs}
        known = [self._taken(action) for action in actions]
        return await asyncio.gather(
            *(
                self._decide(f"{key}-{number}", action, allowed.get(action.get("name"), set()), known[number])
                for number, action in enumerate(actions)
            )
        )

    def _taken(self, action: JsonObject) -> ShownCall | None:
        """Return the shown call that an action is about. Each call belongs to only one action."""
        name = self._prefix + str(action.get("name"))
        found = next((each for each in self._free if each.name == name and arguments_of(each) == action["args"]), None)
        if found is not None:
            self._free.remove(found)
        return found

    async def _decide(self, key: str, action: JsonObject, allowed: set[str], known: ShownCall | None) -> JsonObject:
        """Ask about one action, and return the decision in LangChain's form."""
        name, args = str(action.get("name")), action.get("args") or {}
        if "respond" in allowed and "approve" not in allowed:
            text = action.get("description") or f"{name} {_text(args)}"
            try:
                return {"type": "respond", "message": str(await self._seam.ask(key, str(text)[:TEXT_MAX_CHARACTERS]))}
            except Rejected as rejected:
                if "reject" not in allowed:
                    return {"type": "respond", "message": f"The person did not answer. {rejected.note}".strip()}
                return {"type": "reject", **({"message": rejected.note} if rejected.note else {})}
        call = known or await show_call(self._seam, key, self._prefix + name, args)
        return decision_of(await self._seam.approve(call.id), name, args, allowed)

    async def _question(self, key: str, value: Any, schema: object) -> Any:  # Any: JSON
        """Ask a question: the interrupt's text, with its options or the schema of its answer."""
        told = value if isinstance(value, dict) else {}
        text = told.get("question") or told.get("message") or told.get("description") or value
        text = text if isinstance(text, str) else _text(text)
        options = told.get("options")
        try:
            if isinstance(options, list) and options and all(isinstance(each, str) for each in options):
                return await self._seam.ask(key, text[:TEXT_MAX_CHARACTERS], options)
            wanted = schema if isinstance(schema, dict) else None
            return await self._seam.ask(key, text[:TEXT_MAX_CHARACTERS], schema=wanted)
        except ValueError:
            shown = text[:TEXT_MAX_CHARACTERS].strip() or "The agent waits for an answer."
            return await self._seam.ask(f"{key}-text", shown)


def decision_of(approval: Approval, name: str, args: JsonObject, allowed: set[str]) -> JsonObject:
    """Return a decision in LangChain's form. Edited arguments that the graph does not allow become a rejection."""
    if not approval.accepted:
        return {"type": "reject", **({"message": approval.note} if approval.note else {})}
    wanted = args if approval.arguments is None else approval.arguments
    if "edit" in allowed and (wanted != args or "approve" not in allowed):
        return {"type": "edit", "edited_action": {"name": name, "args": wanted}}
    if wanted != args:
        return {"type": "reject", "message": f"The person wants other arguments: {_text(wanted)}"}
    return {"type": "approve"}


def allowed_in(schema: object) -> set[str]:
    """Return the decisions that the schema of an answer allows, which are the constants of the properties named
    `type`."""
    found: set[str] = set()
    waiting = [schema]
    for each in waiting:  # the list grows in the loop; a schema of the middleware has a few dozen parts
        if isinstance(each, dict):
            of_type = (each.get("properties") or {}).get("type") if isinstance(each.get("properties"), dict) else None
            if isinstance(of_type, dict):
                found |= DECISIONS & {of_type.get("const"), *(of_type.get("enum") or ())}
            waiting += [part for key, part in each.items() if key in ("anyOf", "oneOf")]
            waiting += list((each.get("$defs") or {}).values())
        elif isinstance(each, list):
            waiting += each
    return found


def _text(value: Any) -> str:  # Any: what a graph asks about
    return msgspec.json.encode(msgspec.to_builtins(value, enc_hook=str)).decode()
