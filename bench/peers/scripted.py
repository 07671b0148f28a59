"""Definitions that the model, the readers and their callers share: tokens, prompts, orders and reports.

A token is its number and the time when it was written, so that a reader behind any server can tell missing, repeated
and late tokens.
"""

import re
import time

import msgspec

__all__ = ["SCRIPT", "TOKEN", "Ask", "Found", "Load", "Play", "prompt", "token"]

TOKEN = re.compile(rb"~(\d+)@(\d+); ")
"""A token: its number, and the microseconds when it was written. None of its characters is escaped in JSON or HTML."""

SCRIPT = re.compile(r"(play|call):([a-z0-9-]+):(\w+)(?::(\d+))?")
"""The order in a prompt: its kind, the chat's name, the count of tokens or the tool's name, and the tokens a second."""


def prompt(chat: str, count: int, rate: int) -> str:
    return f"Please play:{chat}:{count}:{rate}"


def token(number: int) -> str:
    return f"~{number}@{time.monotonic_ns() // 1000}; "


class Play(msgspec.Struct):
    """One answer to one request."""

    written: int = 0
    ended: bool = False
    """Whether all tokens were written."""
    cut: bool = False
    """Whether the client disconnected before the end."""


class Ask(msgspec.Struct, frozen=True):
    """The bytes of one request, and the number of readers that send it."""

    port: int
    request: bytes
    readers: int = 1
    pause_seconds: float = 0.0
    """The pause before the request, in which the answer that it asks for begins."""


class Load(msgspec.Struct, frozen=True):
    asks: list[Ask]
    tokens: int
    timeout_seconds: float


class Found(msgspec.Struct, frozen=True):
    """`latencies_us` has the lateness of all tokens that were written after their readers were connected."""

    tokens: int
    missing: int
    latencies_us: list[int]
    bytes: int
    events: int = 0
    """The number of data lines that all readers received."""
    refused: str = ""
    """The first line of an answer with an error."""
