"""Draws the next command of a chat, by chance and by the state that its poster sees.

Each kind of chat has a mixture of commands and a model. Every text holds its request id, so that all texts differ and
an answer belongs to one message alone. The functions are pure but for the random numbers that they are given.
"""

import base64
import hashlib
import random
from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from tests.torture.answers import ECHO, ESSAY, FILE_NAME, TOOLS
from tests.torture.evidence import Asked
from tests.torture.history import NOTE_KEY
from threadcast_protocol.fold.state import ChatState
from threadcast_protocol.wire.events import PauseReason
from threadcast_protocol.wire.messages import JsonObject

__all__ = [
    "KINDS",
    "MODELS",
    "ChatKind",
    "beginning",
    "claim",
    "decision",
    "file_of",
    "first_command",
    "ide_result",
    "kind_of",
    "mortal_command",
    "next_command",
]

ChatKind: TypeAlias = Literal["talk", "tools", "essay", "bulk", "editor", "family", "files"]

KINDS: tuple[tuple[ChatKind, int], ...] = (
    ("talk", 44),
    ("tools", 16),
    ("essay", 8),
    ("bulk", 2),
    ("editor", 10),
    ("family", 10),
    ("files", 10),
)
"""The number of chats of each kind in a hundred. Bulk chats fill buffers and are trimmed; faults interrupt the long
answers of essay chats. Editor chats have client tools, family chats have sub-chats, and the files of files chats are
stored beside the log."""

BULK_CHARACTERS = 16_000
"""A text of this length occurs four times in an answer's events: 64 kB, a quarter of a subscriber's buffer (DESIGN
§5)."""

FILE_BYTES = 26_000
"""In base64 these bytes have 34,668 characters; a part above 32,768 characters is stored beside the log."""

MODELS: dict[ChatKind, str] = {"talk": ECHO, "tools": TOOLS, "essay": ESSAY, "bulk": ECHO}
MODELS |= {"editor": TOOLS, "family": TOOLS, "files": ECHO}

_WEIGHTS = {
    "user_message": 69,
    "priority": 4,
    "interrupt": 4,
    "set_params": 8,
    "regenerate": 5,
    "abort": 4,
    "update_message": 3,
    "remove_message": 2,
    "retry_from_index": 2,
    "select_branch": 2,
    "continue_message": 1,
}
_ABORTS_OF_FAMILIES = 12
"""Weight of aborts in family chats, in place of 4, because an abort must also end the sub-chats."""

_FLAVOURS = ("plain", "two\nlines", "quotes \"' and \\", "data: x\n\nid: 7", "tiếng Việt, 日本語, 🧵", "")


def kind_of(number: int) -> ChatKind:
    """Return the kind of chat `number`; the kinds of `KINDS` are spread evenly over the numbers."""
    at = number * 37 % 100  # 37 and 100 have no common divisor, so a hundred chats in a row take each place once
    for kind, weight in KINDS:
        if at < weight:
            return kind
        at -= weight
    return "talk"


def first_command(chat_id: str, kind: ChatKind, request_id: str) -> Asked:
    """Return the command that makes the chat, with its model."""
    return _asked(chat_id, request_id, "set_params", {"patch": {"model": MODELS[kind], **_note(request_id)}})


def beginning(number: int, request_id: str) -> Asked | None:
    """Return the requests that some talk chats make before their first command: an import of their client's messages,
    or a branch from such an imported chat. A branch is refused until the messages of the imported chat are stored."""
    chat_id = f"torture-{number}"
    if _is_restored(number):
        question = f"{chat_id} began elsewhere"
        asks: JsonObject = {"role": "user", "content": question, "message_id": f"q-{chat_id}"}
        says: JsonObject = {"role": "assistant", "content": f"You said: {question}", "finish_reason": "stop"}
        messages = [asks, {**says, "message_id": f"a-{chat_id}", "model": ECHO}]
        return _asked(chat_id, request_id, "restore_messages", {"messages": messages})
    earlier = next((f"torture-{at}" for at in range(number, -1, -1) if _is_restored(at)), None)
    if earlier is None or kind_of(number) != "talk" or number % 4 != 2:
        return None
    body: JsonObject = {"source_chat_id": earlier, "up_to_message_id": f"a-{earlier}"}
    return _asked(chat_id, request_id, "branch_from_chat", body)


def _is_restored(number: int) -> bool:
    return kind_of(number) == "talk" and number % 4 == 1


def next_command(chat_id: str, kind: ChatKind, request_id: str, state: ChatState | None, rng: random.Random) -> Asked:
    """Return a command that makes sense now, but may no longer make sense when the server carries it out."""
    weights = _WEIGHTS if kind != "family" else {**_WEIGHTS, "abort": _ABORTS_OF_FAMILIES}
    (drawn,) = rng.choices(list(weights), list(weights.values()))
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
        case "retry_from_index" if state is not None and users:
            body = {"index": rng.randrange(len(state.path)), "content": f"{request_id} from there"}
            return _asked(chat_id, request_id, "retry_from_index", body | {"prune": rng.random() < 0.5})
        case "select_branch" if state is not None and (others := _beside_the_path(state)):
            return _asked(chat_id, request_id, "select_branch", {"message_id": rng.choice(others)})
        case "continue_message" if state is not None and users:
            return _asked(chat_id, request_id, "continue_message", {"message_id": state.path[-1]})
        case _:
            body = {"content": _content(kind, request_id, rng)}
            body |= {drawn: True} if drawn in ("priority", "interrupt") else {}
            return _asked(chat_id, request_id, "user_message", body)


def decision(chat_id: str, request_id: str, reason: PauseReason, rng: random.Random) -> Asked:
    """Return a person's decision on a paused call: mostly an acceptance, and never for a call that may have run
    already."""
    body: JsonObject = {
        "tool_call_id": reason.tool_call_id,
        "accepted": reason.type == "confirmation" and rng.random() < 0.8,
        "input_hash": reason.input_hash,
    }
    return _asked(chat_id, request_id, "tool_decision", body)


def edit(chat_id: str, request_id: str, target: str) -> Asked:
    """Return an edit of a command that may still be in the queue."""
    body: JsonObject = {"target_request_id": target, "content": f"{request_id} for {target}"}
    return _asked(chat_id, request_id, "edit_queued", body)


def file_of(request_id: str) -> bytes:
    """Return the bytes that a message of a files chat attaches: unique, and above 32 kB in base64, so that they become
    a blob (PROTOCOL §10). The bytes are not text in any encoding, so no model would receive them as text."""
    return b"\0" + hashlib.shake_256(request_id.encode()).digest(FILE_BYTES)


def claim(chat_id: str, request_id: str, tool_call_id: str, claimer: str) -> Asked:
    """Return an editor's claim of a client tool."""
    return _asked(chat_id, request_id, "ide_tool_claim", {"tool_call_id": tool_call_id, "claimer": claimer})


def ide_result(chat_id: str, request_id: str, tool_call_id: str, *, has_failed: bool) -> Asked:
    """Return an editor's answer with a unique text."""
    body: JsonObject = {"tool_call_id": tool_call_id, "content": f"done by {request_id}", "tool_failed": has_failed}
    return _asked(chat_id, request_id, "ide_tool_result", body)


def _beside_the_path(state: ChatState) -> list[str]:
    """Return the messages that a client knows and that are not on the chat's path."""
    return [other for key in state.path for other in state.nodes[key].sibling_ids if other not in state.path]


def mortal_command(chat_id: str, kind: ChatKind, request_id: str, rng: random.Random) -> Asked:
    """Return a command for a chat that will be deleted, usually a user's message."""
    if rng.random() < 0.15:
        return _asked(chat_id, request_id, "set_params", {"patch": _note(request_id)})
    return _asked(chat_id, request_id, "user_message", {"content": _content(kind, request_id, rng)})


def _content(kind: ChatKind, request_id: str, rng: random.Random) -> str | list[JsonObject]:
    words = _words(kind, request_id, rng)
    if kind != "files" or rng.random() < 0.4:
        return words
    data = base64.b64encode(file_of(request_id)).decode()
    file: JsonObject = {"type": "file", "name": FILE_NAME, "mime": "application/octet-stream", "data": data}
    return [{"type": "text", "text": words}, file]


def _words(kind: ChatKind, request_id: str, rng: random.Random) -> str:
    if kind == "editor" and rng.random() < 0.6:
        tools = rng.choices(["open_file", "open_quickly", "count_safe"], [5, 3, 2], k=rng.randint(1, 2))
        return _calls(tools, request_id)
    if kind == "family" and rng.random() < 0.6:
        task = _calls(rng.choices(["count_once", "count_safe", "linger"], [4, 2, 3], k=rng.randint(1, 2)), request_id)
        if rng.random() < 0.3:
            task = _delegate(task)
        return "\n".join(_delegate(task) for _ in range(rng.choice([1, 1, 1, 2])))
    if kind == "tools" and rng.random() < 0.6:
        tools = rng.choices(["count_once", "count_safe", "count_asked"], [5, 4, 1], k=rng.randint(1, 3))
        return _calls(tools, request_id)
    if kind == "bulk":
        return f"{request_id} " + "lorem ipsum " * (BULK_CHARACTERS // 12)
    return f"{request_id} {rng.choice(_FLAVOURS)}".strip()


def _calls(tools: Sequence[str], request_id: str) -> str:
    return "\n".join(f'call {tool} {{"word": "{request_id}-{at}"}}' for at, tool in enumerate(tools))


def _delegate(task: str) -> str:
    return f"call delegate {msgspec.json.encode({'task': task}).decode()}"


def _note(request_id: str) -> JsonObject:
    return {"metadata": {NOTE_KEY: request_id}}


def _asked(chat_id: str, request_id: str, kind: str, body: JsonObject) -> Asked:
    encoded = msgspec.json.encode({"client_request_id": request_id, "type": kind, **body})
    return Asked(chat_id=chat_id, request_id=request_id, type=kind, body=encoded)
