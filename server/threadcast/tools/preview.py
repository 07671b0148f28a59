"""Defines previews: a preview shows a person the object that a tool would save, before the tool saves it (PROTOCOL
§11).

A tool with the policy `preview` checks its arguments, changes nothing, and returns a `Preview`; the server publishes it
and tells the model that it was sent. For invalid arguments the tool raises `ToolFailed`, or returns a failed
`ToolResult`: then no preview is shown.

    @tool(policy="preview", traits=Traits(payload_type="article", commit_tool="save_article"))
    def propose_article(title: str, body: str, object_id: str | None = None) -> Preview:
        return Preview(f"Article {title!r}", {"title": title, "body": body}, object_id)
"""

import msgspec

from threadcast_protocol.wire.messages import JsonObject

__all__ = ["Preview"]


class Preview(msgspec.Struct, frozen=True):
    """`object` is the object that would be saved. `object_id` is the id of the object that would be changed, None for a
    new object.

    The commit tool is called with the object's fields, and with `object_id` unless it is None. `before` is the present
    object, shown for comparison and not passed to any tool.
    """

    description: str
    object: JsonObject
    object_id: str | None = None
    before: JsonObject | None = None

    @property
    def data(self) -> JsonObject:
        """Return the payload's `data`; the data has `object_id` only for a change of an existing object (GATE-4)."""
        named: JsonObject = {} if self.object_id is None else {"object_id": self.object_id}
        is_update = self.object_id is not None
        before: JsonObject = {} if self.before is None else {"before": self.before}
        return {"description": self.description, "object": self.object, "is_update": is_update, **named, **before}
