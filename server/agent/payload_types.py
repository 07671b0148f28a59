"""What clients can be shown besides text, and what they can be offered to do: payload types and actions, as data.

The operator registers them (`[payloads.NAME]`, `actions` of a profile); which of them hold in a place is the profile's
business, how they are found in a model's text that of `final.py`.
"""

from typing import Literal

import msgspec

from protocol.messages import JsonObject

__all__ = ["Action", "PayloadType"]


class PayloadType(msgspec.Struct, frozen=True, kw_only=True):
    """`schema` is JSON Schema of the data, `marker` the word before it in a model's text ('' when only tools make it),
    `summary` a template over the data's fields, such as "{title}: {count} rows" (PAY-1)."""

    name: str
    description: str = ""
    schema: JsonObject = {}
    marker: str = ""
    summary: str = ""


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """What a button under an answer may do (PAY-6)."""

    action: str
    label: str = ""
    description: str = ""
    handler: Literal["client", "server"] = "client"
