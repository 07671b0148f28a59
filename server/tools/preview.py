"""A preview: what a tool would save, shown to a person before anything is saved (PROTOCOL §11).

A tool under the policy `preview` checks its arguments, changes nothing, and returns one of these; the server publishes
it and tells the model that it was sent. A tool that finds its arguments wrong raises `ToolFailed`, or returns a failed
`ToolResult`: then nothing is shown.

    @tool(policy="preview", traits=Traits(payload_type="article", commit_tool="save_article"))
    def propose_article(title: str, body: str, object_id: str | None = None) -> Preview:
        return Preview(f"Article {title!r}", {"title": title, "body": body}, object_id)
"""

import msgspec

from protocol.messages import JsonObject

__all__ = ["Preview"]


class Preview(msgspec.Struct, frozen=True):
    """`object` is what would be saved; `object_id` names what it would change, None where it is new.

    The commit tool is called with the object's fields, and with `object_id` where there is one. `before` is the object
    as it is now, for people to compare; no tool is called with it.
    """

    description: str
    object: JsonObject
    object_id: str | None = None
    before: JsonObject | None = None

    @property
    def data(self) -> JsonObject:
        """As the payload's `data`: `object_id` is there exactly for a change of something that exists (GATE-4)."""
        named: JsonObject = {} if self.object_id is None else {"object_id": self.object_id}
        is_update = self.object_id is not None
        before: JsonObject = {} if self.before is None else {"before": self.before}
        return {"description": self.description, "object": self.object, "is_update": is_update, **named, **before}
