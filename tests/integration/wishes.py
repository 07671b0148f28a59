"""Commands in the form that the model of a chat accepts: a command that can wait in the queue, or a decision about a
call."""

from dataclasses import dataclass

from tests.integration.tree_model import Call

__all__ = ["Asked", "Decided"]


@dataclass
class Asked:
    """A command that may wait in the queue. If `target` is None, the command names an unknown message (`is_named`) or
    no message."""

    request_id: str
    kind: str
    text: str = ""
    priority: bool = False
    model: str = ""
    target: int | None = None
    is_named: bool = False
    index: int = 0
    prune: bool = False
    regenerate: bool = False
    branch: bool = False
    interrupt: bool = False

    @property
    def is_plain(self) -> bool:
        return self.kind == "say" and not self.priority and not self.model


@dataclass
class Decided:
    call: Call | None
    accepted: bool
    edited: dict[str, str] | None = None
    remember: bool = False
