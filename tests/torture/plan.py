"""What the posters ask for: the next command of a chat, from chance and from what its poster sees of it.

A kind of chat is a mixture of commands and a model. Every text holds its request id, so that no two are alike and the
answer to one cannot pass for the answer to another. Pure but for the random numbers that it is given.
"""

import random
from typing import Literal, TypeAlias

import msgspec

from protocol.events import PauseReason
from protocol.messages import JsonObject
from protocol.state import ChatState
from tests.torture.answers import ECHO, ESSAY, TOOLS
from tests.torture.evidence import Asked
from tests.torture.history import NOTE_KEY

__all__ = ["KINDS", "ChatKind", "decision", "first_command", "kind_of", "next_command"]

ChatKind: TypeAlias = Literal["talk", "tools", "essay", "bulk"]

KINDS: tuple[tuple[ChatKind, int], ...] = (("talk", 66), ("tools", 22), ("essay", 10), ("bulk", 2))
"""In a hundred chats. Bulk chats fill buffers and are trimmed; essays are struck in the middle of an answer."""

BULK_CHARACTERS = 16_000
"""Four times in an answer's events: 64 kB, a quarter of a subscriber's buffer (DESIGN §5)."""

MODELS: dict[ChatKind, str] = {"talk": ECHO, "tools": TOOLS, "essay": ESSAY, "bulk": ECHO}

_WEIGHTS = {
    "user_message": 73,
    "priority": 4,
    "set_params": 8,
    "regenerate": 5,
    "abort": 4,
    "update_message": 3,
    "remove_message": 2,
}
_FLAVOURS = ("plain", "two\nlines", "quotes \"' and \\", "data: x\n\nid: 7", "tiếng Việt, 日本語, 🧵", "")


def kind_of(number: int) -> ChatKind:
    """Of chat `number`: the mixture, spread evenly."""
    at = number * 37 % 100  # 37 and 100 have no common divisor: a hundred chats in a row have each place once
    for kind, weight in KINDS:
        if at < weight:
            return kind
        at -= weight
    return "talk"


def first_command(chat_id: str, kind: ChatKind, request_id: str) -> Asked:
    """Makes the chat, with its model."""
    return _asked(chat_id, request_id, "set_params", {"patch": {"model": MODELS[kind], **_note(request_id)}})


def next_command(chat_id: str, kind: ChatKind, request_id: str, state: ChatState | None, rng: random.Random) -> Asked:
    """One that makes sense now; whether it still does when it is taken up is the server's to say."""
    (drawn,) = rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
    users = [key for key in state.path if state.nodes[key].role == "user"] if state is not None else []
    match drawn:
        case "set_params":
            return _asked(chat_id, request_id, "set_params", {"patch": _note(request_id)})
        case "abort":
            return _asked(chat_id, request_id, "abort", {"clear_queue": rng.random() < 0.3})
        case "regenerate" if users:
            return _asked(chat_id, request_id, "regenerate", {})
        case "update_message" if users:
            body: JsonObject = {"message_id": rng.choice(users), "content": f"{request_id} instead"}
            body |= {"regenerate": rng.random() < 0.5, "mode": rng.choice(["in_place", "branch"])}
            return _asked(chat_id, request_id, "update_message", body)
        case "remove_message" if len(users) > 2:
            body = {"message_id": rng.choice(users[-3:]), "regenerate": rng.random() < 0.3}
            return _asked(chat_id, request_id, "remove_message", body)
        case _:
            body = {"content": _words(kind, request_id, rng), "priority": drawn == "priority"}
            return _asked(chat_id, request_id, "user_message", body)


def decision(chat_id: str, request_id: str, reason: PauseReason, rng: random.Random) -> Asked:
    """A person's word on a paused call: mostly yes, and never to what may have run already."""
    body: JsonObject = {
        "tool_call_id": reason.tool_call_id,
        "accepted": reason.type == "confirmation" and rng.random() < 0.8,
        "input_hash": reason.input_hash,
    }
    return _asked(chat_id, request_id, "tool_decision", body)


def edit(chat_id: str, request_id: str, target: str) -> Asked:
    """Other words for a command that perhaps still waits."""
    body: JsonObject = {"target_request_id": target, "content": f"{request_id} for {target}"}
    return _asked(chat_id, request_id, "edit_queued", body)


def _words(kind: ChatKind, request_id: str, rng: random.Random) -> str:
    if kind == "tools" and rng.random() < 0.6:
        tools = rng.choices(["count_once", "count_safe", "count_asked"], [5, 4, 1], k=rng.randint(1, 3))
        return "\n".join(f'call {tool} {{"word": "{request_id}-{at}"}}' for at, tool in enumerate(tools))
    if kind == "bulk":
        return f"{request_id} " + "lorem ipsum " * (BULK_CHARACTERS // 12)
    return f"{request_id} {rng.choice(_FLAVOURS)}".strip()


def _note(request_id: str) -> JsonObject:
    return {"metadata": {NOTE_KEY: request_id}}


def _asked(chat_id: str, request_id: str, kind: str, body: JsonObject) -> Asked:
    encoded = msgspec.json.encode({"client_request_id": request_id, "type": kind, **body})
    return Asked(chat_id=chat_id, request_id=request_id, type=kind, body=encoded)
