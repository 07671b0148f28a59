"""Translates messages of a chat into the content blocks of a prompt (ACP, "Content"). Pure."""

from collections.abc import Sequence
from typing import TypeAlias

from acp.schema import (
    AudioContentBlock,
    BlobResourceContents,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    PromptCapabilities,
    TextContentBlock,
    TextResourceContents,
)

from threadcast.custom_agents.rounds import RoundMessage
from threadcast_protocol.wire.messages import AudioPart, FilePart, ImagePart, Part, TextPart, text_of

__all__ = ["HISTORY_MAX_CHARACTERS", "Block", "history_block", "prompt_blocks"]

HISTORY_MAX_CHARACTERS = 200_000
"""Maximum characters of the newest part of a history that a new session gets as text: some 50,000 tokens, a quarter of
common windows."""

Block: TypeAlias = TextContentBlock | ImageContentBlock | AudioContentBlock | EmbeddedResourceContentBlock


def prompt_blocks(messages: Sequence[RoundMessage], able: PromptCapabilities) -> list[Block]:
    """Return the blocks of a user's messages. An attachment that the agent cannot read is replaced by a note."""
    blocks: list[Block] = []
    for message in messages:
        content = message.content
        if isinstance(content, str):
            blocks.append(TextContentBlock(type="text", text=content))
        else:
            blocks.extend(_block(part, able) for part in content or ())
    return blocks


def history_block(messages: Sequence[RoundMessage]) -> TextContentBlock | None:
    """Return the earlier conversation as one text, for an agent that cannot load its session; None if there is no
    earlier text."""
    said = [f"{message.role}: {text_of(message.content)}" for message in messages if text_of(message.content)]
    if not said:
        return None
    text = "\n\n".join(said)[-HISTORY_MAX_CHARACTERS:]
    return TextContentBlock(type="text", text=f"The conversation so far:\n\n{text}\n\nThe newest message follows.")


def _block(part: Part, able: PromptCapabilities) -> Block:
    match part:
        case TextPart(text=text):
            return TextContentBlock(type="text", text=text)
        case ImagePart(image_url=image) if able.image:
            head, _, data = image.url.partition(",")
            if head.startswith("data:") and head.endswith(";base64"):
                mime = head.removeprefix("data:").removesuffix(";base64")
                return ImageContentBlock(type="image", data=data, mime_type=mime)
        case AudioPart(input_audio=sound) if able.audio:
            return AudioContentBlock(type="audio", data=sound.data, mime_type=f"audio/{sound.format or 'wav'}")
        case FilePart(name=name, text=str(text)) if able.embedded_context:
            inner = TextResourceContents(uri=f"file:///{name}", text=text, mime_type=part.mime)
            return EmbeddedResourceContentBlock(type="resource", resource=inner)
        case FilePart(name=name, data=str(data)) if able.embedded_context:
            blob = BlobResourceContents(uri=f"file:///{name}", blob=data, mime_type=part.mime)
            return EmbeddedResourceContentBlock(type="resource", resource=blob)
        case FilePart(name=name, text=str(text)):
            return TextContentBlock(type="text", text=f"[file {name}]\n{text}")
        case _:
            pass
    return TextContentBlock(type="text", text="[an attachment that this agent cannot read]")
