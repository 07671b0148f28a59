"""The events that tools send to clients unchanged (PROTOCOL §5). Import them from `wire/events.py`."""

from typing import TypeAlias

import msgspec

__all__ = [
    "BrowserClosed",
    "BrowserContextOversize",
    "BrowserFrame",
    "BrowserStatus",
    "BrowserTimeline",
    "BrowserToolbarAction",
    "PassThrough",
]


class _PassThrough(msgspec.Struct, frozen=True, tag_field="type", omit_defaults=True):
    """An event that clients get from a tool unchanged, with all its fields. The event changes no state (EVT-19)."""


class BrowserFrame(_PassThrough, frozen=True, tag="browser_frame"):
    """An event of a browser tool, passed on unchanged."""


class BrowserStatus(_PassThrough, frozen=True, tag="browser_status"):
    """An event of a browser tool, passed on unchanged."""


class BrowserClosed(_PassThrough, frozen=True, tag="browser_closed"):
    """An event of a browser tool, passed on unchanged."""


class BrowserTimeline(_PassThrough, frozen=True, tag="browser_timeline"):
    """An event of a browser tool, passed on unchanged."""


class BrowserContextOversize(_PassThrough, frozen=True, tag="browser_context_oversize"):
    """An event of a browser tool, passed on unchanged."""


class BrowserToolbarAction(_PassThrough, frozen=True, tag="browser_toolbar_action"):
    """An event of a browser tool, passed on unchanged."""


PassThrough: TypeAlias = (
    BrowserFrame | BrowserStatus | BrowserClosed | BrowserTimeline | BrowserContextOversize | BrowserToolbarAction
)
