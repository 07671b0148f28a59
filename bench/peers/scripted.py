"""What the model, the readers and their callers share: the tokens, the prompts, what each is told and tells.

A token is its number and the moment at which it was written, so that a reader behind any server knows what came, what
came twice, and how late. The rule: nothing here knows a peer.
"""

import re
import time

import msgspec

__all__ = ["SCRIPT", "TOKEN", "Ask", "Found", "Load", "Play", "prompt", "token"]

TOKEN = re.compile(rb"~(\d+)@(\d+); ")
"""Number and microseconds. No character of it is escaped in JSON or HTML, and no tokenizer is asked."""

SCRIPT = re.compile(r"(play|call):([a-z0-9-]+):(\w+)(?::(\d+))?")
"""In a prompt: what is done, the chat's name, the count of tokens or the tool's name, tokens a second."""


def prompt(chat: str, count: int, rate: int) -> str:
    return f"Please play:{chat}:{count}:{rate}"


def token(number: int) -> str:
    return f"~{number}@{time.monotonic_ns() // 1000}; "


class Play(msgspec.Struct):
    """One answer to one request."""

    written: int = 0
    ended: bool = False
    """All tokens were written."""
    cut: bool = False
    """Who asked went away before the end."""


class Ask(msgspec.Struct, frozen=True):
    """One request, as bytes for the wire, and how many readers make it."""

    port: int
    request: bytes
    readers: int = 1
    pause_seconds: float = 0.0
    """Before it: what it asks for must be there."""


class Load(msgspec.Struct, frozen=True):
    asks: list[Ask]
    tokens: int
    timeout_seconds: float


class Found(msgspec.Struct, frozen=True):
    """`latencies_us` of all tokens of all readers that were there when they were written."""

    tokens: int
    missing: int
    latencies_us: list[int]
    bytes: int
    refused: str = ""
    """The first line of an answer that was none."""
