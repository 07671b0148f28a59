"""Edits of messages and of waiting commands follow one rule: an absent field is kept, and [] clears the field (PROTOCOL
§2)."""

from typing import Any

import pytest

from tests.unit.pure_chat import PureChat, say
from threadcast_protocol.wire.commands import EditQueued, UpdateMessage, UserMessage
from threadcast_protocol.wire.content import edited, read_content
from threadcast_protocol.wire.messages import JsonObject

URL = "/v1/chats/c/blobs/" + "{}" * 64


def image(digit: int) -> JsonObject:
    return {"type": "image_url", "image_url": {"url": URL.format(*[digit] * 64)}}


def shown(content: Any) -> list[str]:  # Any: raw or read
    """Return the text of text parts, and the digit of images."""
    if isinstance(content, str):
        return [content]
    return [part.text if hasattr(part, "text") else f"image {part.image_url.url[-1]}" for part in content]


NEW: JsonObject = {"type": "text", "text": "new"}
EDITS: list[tuple[JsonObject, list[str]]] = [
    ({"content": "new"}, ["new", "image 1", "image 2"]),
    ({"content": "new", "attachments": []}, ["new"]),
    ({"content": "new", "attachments": [image(3)]}, ["new", "image 3"]),
    ({"attachments": []}, ["old"]),
    ({"attachments": [image(3)]}, ["old", "image 3"]),
    ({"attachments": [{"image_url": image(3)["image_url"]}]}, ["old", "image 3"]),
    ({"content": [NEW]}, ["new"]),
    ({"content": [image(3), NEW]}, ["image 3", "new"]),
    ({"content": [NEW], "attachments": [image(3)]}, ["new", "image 3"]),
]
OLD = [image(1), image(2)]


def first(kind: str) -> UserMessage:
    """Return the same message, with attachments or with parts."""
    if kind == "attachments":
        return UserMessage(client_request_id="old", content="old", attachments=OLD)
    return UserMessage(client_request_id="old", content=[{"type": "text", "text": "old"}, *OLD])


@pytest.mark.row("CMD-7")
@pytest.mark.parametrize("mode", ["in_place", "branch"])
@pytest.mark.parametrize("kind", ["attachments", "parts"])
@pytest.mark.parametrize(("edit", "wanted"), EDITS)
def test_an_edit_of_a_message_leaves_what_it_does_not_name(
    edit: JsonObject, wanted: list[str], kind: str, mode: Any
) -> None:
    chat = PureChat(None, first(kind))
    chat.finish()
    target = chat.state.path[0]
    chat.command(UpdateMessage(client_request_id="u", message_id=target, mode=mode, **edit))
    message = chat.state.nodes[chat.state.path[0]]
    assert shown(message.content) == wanted
    assert len(message.attachments) == len([each for each in wanted if each.startswith("image")])
    if mode == "branch":
        assert shown(chat.state.nodes[target].content) == ["old", "image 1", "image 2"], "the old one stays as it was"


@pytest.mark.row("CMD-17")
@pytest.mark.parametrize("kind", ["attachments", "parts"])
@pytest.mark.parametrize(("edit", "wanted"), EDITS)
def test_an_edit_of_a_waiting_message_follows_the_same_rule(edit: JsonObject, wanted: list[str], kind: str) -> None:
    chat = PureChat(None, say("first"), first(kind), EditQueued(client_request_id="e", target_request_id="old", **edit))
    chat.finish()
    assert shown(chat.state.nodes[chat.state.path[2]].content) == wanted


@pytest.mark.parametrize(
    ("waiting", "edit", "wanted"),
    [
        ({"content": "new"}, {"content": "newer"}, ["newer", "image 1", "image 2"]),
        ({"content": "new"}, {"attachments": []}, ["new"]),
        ({"attachments": []}, {"content": "newer"}, ["newer"]),
        ({"attachments": []}, {"attachments": [image(3)]}, ["old", "image 3"]),
        ({"content": "new", "attachments": [image(3)]}, {"content": "newer"}, ["newer", "image 3"]),
        ({"content": [NEW, image(3)]}, {"content": "newer"}, ["newer", "image 3"]),
        ({"content": "new"}, {"content": [NEW]}, ["new"]),
    ],
)
def test_an_edit_of_a_waiting_edit_leaves_absent_what_neither_names(
    waiting: JsonObject, edit: JsonObject, wanted: list[str]
) -> None:
    chat = PureChat(None, first("parts"))
    chat.finish()
    target = chat.state.path[0]
    chat.command(say("busy"))
    chat.command(UpdateMessage(client_request_id="u", message_id=target, **waiting))
    chat.command(EditQueued(client_request_id="e", target_request_id="u", **edit))
    chat.finish()
    assert shown(chat.state.nodes[target].content) == wanted


def test_a_message_whose_words_are_edited_away_still_says_something() -> None:
    parts = read_content("old", OLD)
    assert edited(parts, None, None)[0] == "old"
    assert edited("plain", None, [image(1)]) == ("plain", [image(1)])
    assert edited([], None, None) == ([], [])
