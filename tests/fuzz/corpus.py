"""Good inputs for mutation: the bodies of the conformance transcripts, a sample of every command and event, a chat's
log.

Each list is made once, in a fixed order, so that a seed means the same inputs in every run.
"""

import hashlib
import json
from collections.abc import Iterator
from functools import cache

from tests.unit.fake_tools import FakeTool
from tests.unit.pure_chat import PureChat, call, say, table
from tests.unit.samples import COMMANDS, EVENTS, SNAPSHOT
from threadcast.chat.entries import RawEntry
from threadcast.chat.entry_codec import encode_state
from threadcast.chat.exports import blob_line, export_lines, export_of
from threadcast.chat.internal_commands import (
    CancelQueued,
    ForgetTool,
    ImportChat,
    InternalCommand,
    StopSubchat,
    SubchatFinished,
)
from threadcast.console.conformance.transcripts import transcripts_directory
from threadcast.tools.base import Tool
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.blobs import Blob, blob_url
from threadcast_protocol.wire.commands import encode_command
from threadcast_protocol.wire.deltas import AppendContent, AppendReasoning
from threadcast_protocol.wire.messages import ImagePart, ImageUrl, Message, TextPart
from threadcast_protocol.wire.principal import Principal
from threadcast_protocol.wire.thread import ThreadChanges

__all__ = ["chat", "commands", "entries", "events", "exports", "inbox_bodies", "states"]

_TRANSCRIPTS = transcripts_directory()

PNG = (
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89\x00\x00"
    b"\x00\rIDATx\x9cc\xf8\x0f\x00\x00\x01\x01\x00\x05\x18\xd8N\x00\x00\x00\x00IEND\xaeB`\x82"
)


_BY = Principal("local", ("approve",))
"""The principal has one permission, because the order of a set of two differs between processes."""


def _bytes(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _posts(value: object) -> Iterator[object]:
    """Yield every body that a transcript posts, at any depth of the transcript."""
    if isinstance(value, dict):
        if isinstance(value.get("post"), dict):
            yield value["post"]
        for inner in value.values():
            yield from _posts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _posts(inner)


@cache
def commands() -> list[bytes]:
    told = [
        _bytes(body)
        for path in sorted(_TRANSCRIPTS.glob("*.json"))
        for body in _posts(json.loads(path.read_text("utf-8")))
    ]
    return list(dict.fromkeys(_bytes(body) for body in COMMANDS.values())) + list(dict.fromkeys(told))


@cache
def inbox_bodies() -> list[bytes]:
    own: list[InternalCommand] = [
        CancelQueued(client_request_id="cancel:a:1", target="a"),
        ForgetTool(client_request_id="forget:1", tool_name="write_note"),
        StopSubchat(client_request_id="stop:1"),
        SubchatFinished(client_request_id="done:1", subchat_id="c2", outcome="complete", text="x"),
        ImportChat(
            client_request_id="import-1",
            thread=ThreadChanges(title="T"),
            messages=[Message(role="user", content="x", message_id="m1")],
            leaf_id="m1",
        ),
    ]
    return [*commands(), *map(encode_command, own)]


@cache
def events() -> list[bytes]:
    return [*(encode(event) for event in EVENTS), encode(SNAPSHOT), *(entry.events for entry in entries())]


@cache
def chat() -> PureChat:
    """Return a chat with two branches, a call, a pause, a queue and an unfinished answer."""
    tools: dict[str, Tool] = {"clock": FakeTool(name="clock"), "mail": FakeTool(name="mail", policy="ask")}
    it = PureChat(table(tools))
    it.command(say("first", "first"), _BY)
    it.stream(AppendReasoning("hm"), AppendContent("answer"))
    it.finish()
    it.command(say("second", "second"), _BY)
    it.asks(call("call-1", "clock", '{"zone":"UTC"}'))
    it.tool_answers("12:00")
    it.says("It is noon.")
    it.command(say("third", "third"), _BY)
    it.stream(AppendContent("half of an"))
    it.command(say("fourth", "fourth"), _BY)
    return it


@cache
def entries() -> list[RawEntry]:
    return list(chat().entries)


@cache
def states() -> list[bytes]:
    return [encode_state(state) for state in chat().states[::4]]


@cache
def exports() -> list[bytes]:
    plain = export_of(chat().state)
    blob = Blob("", "image/png", PNG)
    blob = Blob(hashlib.sha256(PNG).hexdigest(), blob.mime, blob.data)
    picture = ImagePart(ImageUrl(blob_url("c9", blob.hash), None, "image/png", len(PNG)))
    shown = Message(role="user", content=[TextPart("see"), picture], message_id="m1")
    answered = Message(role="assistant", content="A dot.", message_id="m2", parent_id="m1")
    second = export_of(chat().states[8])
    pictured = type(plain)(
        chat_id="c9",
        thread=ThreadChanges(title="Dots"),
        leaf_id="m2",
        messages=[shown, answered],
        agents=[{"id": "a"}],
    )
    written = [b"".join(export_lines(each)) for each in (plain, second)]
    written.insert(1, b"".join(export_lines(pictured, 1)) + blob_line(blob))
    return [*written, written[0] + written[1]]
