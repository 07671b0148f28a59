"""Untrusted input: bodies of commands, of the one-shot endpoints and of streams, and whole exports.

Each law does what the endpoint does before it calls the store, in the same order. If a body is accepted, the chat's
owner must decode the same value after each encoding on the way.
"""

from random import Random

import msgspec

from tests.fuzz import corpus
from tests.fuzz.target import Target, held
from tests.unit.import_files import read_exports
from tests.unit.pure_chat import PureChat
from threadcast.api.streams import read_change, read_typing
from threadcast.chat.exports import export_lines, export_of
from threadcast.chat.internal_commands import decode_inbox_body
from threadcast.chat.restores import read_messages
from threadcast.compat.oneshot_bodies import (
    Ask,
    Fresh,
    check_scope,
    read_agent_chat,
    read_page_chat,
    read_text_chat,
)
from threadcast.compat.openai.requests import read_completions
from threadcast.profiles.profile import Profile, Profiles
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.blobs import BlobCollector, image_mime
from threadcast_protocol.wire.commands import (
    Command,
    EditQueued,
    IdeToolResult,
    RestoreMessages,
    RetryFromIndex,
    SetParams,
    UpdateMessage,
    UserMessage,
    body_digest,
    decode_command,
    encode_command,
)
from threadcast_protocol.wire.content import check_text, read_content, read_context_files
from threadcast_protocol.wire.errors import BadRequest, InvalidContent, Refused
from threadcast_protocol.wire.messages import content_text, preview_of
from threadcast_protocol.wire.thread import read_patch

__all__ = ["check_command", "command_targets"]


def check_command(command: Command) -> None:
    """Apply the checks that the endpoint makes in addition to the struct's. Raises Refused."""
    match command:
        case UserMessage():
            read_content(command.content, command.attachments)
            read_context_files(command.context_files)
            read_patch(command.params)
        case RetryFromIndex():
            read_content(command.content, command.attachments)
        case UpdateMessage(content=None, attachments=None):
            raise BadRequest("an edit has content, attachments or both", path="/content")
        case UpdateMessage() | EditQueued() if command.content is not None or command.attachments:
            read_content([] if command.content is None else command.content, command.attachments or [])
        case SetParams():
            read_patch(command.patch)
        case RestoreMessages():
            encode(read_messages(command.messages))
        case IdeToolResult():
            check_text(command.content, "/content")
        case _:
            pass


def _command(data: bytes, random: Random) -> bool:
    try:
        command = decode_command(data)
        digest = body_digest(data)
        check_command(command)
    except Refused:
        return False
    again = encode_command(command)
    held(decode_command(again) == command, "a command is not what it was after its way through an inbox", again)
    held(decode_inbox_body(again) == command, "an owner reads something else than the edge", again)
    held(body_digest(data) == digest, "the digest of the same body differs")
    return True


def _inbox(data: bytes, random: Random) -> bool:
    try:
        command = decode_inbox_body(data)
    except BadRequest:
        return False
    held(decode_inbox_body(encode_command(command)) == command, command)
    return True


def _content(data: bytes, random: Random) -> bool:
    """Check the content of a body with and without a blob collector: content that becomes a blob must stay the same."""
    try:
        content = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    content_text(content)
    preview_of(content)
    try:
        parts = read_content(content, [])
    except Refused:
        return False
    held(read_content(msgspec.json.decode(encode(parts)), []) == parts, "content read twice differs", parts)
    collector = BlobCollector("c1")
    try:
        read_content(content, [], collector=collector)
    except InvalidContent:  # a blob of another chat
        return False
    for blob in collector.blobs.values():
        image_mime(blob.data)
    return True


_PROFILES = Profiles({"help": Profile(name="help")}, {}, "demo/echo")


def _one_shot(data: bytes, random: Random) -> bool:
    fresh = Fresh("c1", "r1", 1)
    accepted = False
    for read in (read_text_chat, read_agent_chat, read_page_chat):
        try:
            ask: Ask = read(data, fresh, _PROFILES)
            check_scope(ask, _PROFILES.all[0])
            check_command(ask.command)
        except Refused:
            continue
        held(decode_command(encode_command(ask.command)) == ask.command, ask.command)
        accepted = True
    try:
        wish = read_completions(data)
    except Refused:
        return accepted
    held(all(message["role"] in ("user", "assistant", "tool") for message in wish.history), wish)
    return True


_ONE_SHOT = [
    b'{"message":"hi","session_id":"c1","on_disconnect":"detach"}',
    b'{"message":"hi","context_type":["reports","articles"],"context":{"a":[1]},"conversation_id":""}',
    b'{"message":"hi","context_type":"general","conversation_id":"c1","on_disconnect":"abort"}',
    b'{"message":"hi","context":{"current_page":"a","active_tab":"b","subtab":"c"},"interaction_type":"text"}',
    b'{"model":"demo/echo","messages":[{"role":"system","content":"be"},{"role":"user","content":"hi"}],"stream":true,'
    b'"stream_options":{"include_usage":true},"metadata":{"chat_id":"c1"},"max_tokens":5,"temperature":0.5,"top_p":1}',
    b'{"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}],"max_completion_tokens":10,'
    b'"frequency_penalty":0,"presence_penalty":0,"reasoning_effort":"low","parallel_tool_calls":true}',
]


def _stream_body(data: bytes, random: Random) -> bool:
    accepted = False
    for read in (read_change, read_typing):
        try:
            read(data)
            accepted = True
        except BadRequest:
            pass
    return accepted


_STREAM_BODIES = [
    b'{"add":[{"chat_id":"c1","from":"1-2-3"},{"chat_id":"c2"}],"remove":["c3"]}',
    b'{"typing":true,"stream_id":"s1"}',
]


def _import(data: bytes, random: Random) -> bool:
    try:
        chats = read_exports(data)
    except Refused:
        return False
    for read in chats:
        chat = PureChat()
        read.imported_into(chat)
        lines = b"".join(export_lines(export_of(chat.state), len(read.blob_hashes)))
        held(len(chat.state.nodes) == len(read.messages), "a message of an import is lost", lines)
    return True


_CONTENT = [
    b'"hello"',
    b'[{"type":"text","text":"hi"},{"type":"file","name":"a.txt","mime":"text/plain","text":"x"}]',
    b'[{"m_type":"text","m_content":"hi"},{"m_type":"image/png","m_content":"iVBORw0KGgo="}]',
    b'[{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}},{"type":"file","name":"a","mime":"b",'
    b'"data":"AAAA"}]',
    b'[{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgoAAAANSUhEUg==","detail":"low"}}]',
    b'[{"type":"image_url","image_url":{"url":"/v1/chats/c1/blobs/' + b"a" * 64 + b'","mime":"image/png","bytes":3}}]',
    b'[{"type":"file","name":"a","mime":"b","blob":"' + b"b" * 64 + b'","bytes":1}]',
]


def command_targets() -> list[Target]:
    return [
        Target("command", _command, corpus.commands(), weight=16),
        Target("inbox", _inbox, corpus.inbox_bodies()),
        Target("content", _content, _CONTENT, weight=8),
        Target("one-shot", _one_shot, _ONE_SHOT),
        Target("stream-body", _stream_body, _STREAM_BODIES),
        Target("import", _import, corpus.exports()),
    ]
