"""The sub-chats of a durable agent, whose ends arrive as messages of the chat's own log (PROTOCOL §12)."""

from typing import Any

from msgspec.structs import replace

from threadcast.agent_loop.durable.execution import Execution
from threadcast.agent_loop.durable.plan import is_over
from threadcast.chat.agent_steps import child_of, record
from threadcast.chat.digests import digest
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.journal import Operation, OperationError, Wait
from threadcast.chat.outbound import close_children
from threadcast.chat.subchats import Wanted, open_child
from threadcast.custom_agents.errors import CallFailed
from threadcast.custom_agents.values import decoded, encoded
from threadcast.tools.chats import ChildResult, ChildWish
from threadcast_protocol.wire.errors import Refused, ToolFailed
from threadcast_protocol.wire.mending import mend_text

__all__ = ["run_subchat"]

TITLE_MAX_CHARACTERS = 200
"""The length of the part of a title or prompt that names the operation."""


async def run_subchat(execution: Execution, prompt: str, wish: ChildWish) -> ChildResult:
    """Run a sub-chat, or return its recorded result. Raises CallFailed: the sub-chat cannot be opened."""
    prompt = mend_text(prompt)
    wishes: dict[str, Any] = decoded(encoded(dict(wish)), dict[str, Any])
    title = mend_text(wish.get("title") or prompt)[:TITLE_MAX_CHARACTERS]
    identity = digest([prompt, wishes])
    branch, key, found = await execution.begin("chat", title, identity)
    room = Wait(key=key, on="child_room")
    while found is None:
        await execution.wait_for(branch, room)
        begun = Operation(kind="chat", name=title, status="begun", digest=identity, ref=_ref(execution, key))
        found = await execution.commit(branch, lambda builder: _open(execution, builder, key, prompt, wishes, begun))  # noqa: B023 - awaited at once
    if found.status == "begun":
        opened = found
        await execution.wait_for(branch, Wait(key=key, on="child", ref=opened.ref))
        found = await execution.commit(branch, lambda builder: _close(builder, key, opened))
    if found.error is not None:
        raise CallFailed(found.error.message)
    result: ChildResult = decoded(found.value or "null", ChildResult)
    return result


def _ref(execution: Execution, key: str) -> str:
    return f"chat-{execution.run_open.run_id}-{execution.durable.restarts}-{key.replace('.', '-')}"


def _open(
    execution: Execution, builder: EntryBuilder, key: str, prompt: str, wishes: dict[str, Any], begun: Operation
) -> Operation | None:
    """Open a sub-chat, and return the record of the operation; None if too many sub-chats run now."""
    if not is_over(builder.state, Wait(key=key, on="child_room"), builder.now_ms):
        return None
    begun = replace(begun, at_ms=builder.now_ms)
    params = dict(wishes.get("params") or {})
    mode = str(params.pop("mode", None) or wishes.get("mode", ""))
    try:
        with builder.all_or_nothing():
            wanted = Wanted(
                begun.ref,
                prompt,
                mode=execution.chat.checked_mode(mode),
                params=params,
                context=wishes.get("context"),
                title=wishes.get("title", ""),
            )
            open_child(builder, wanted)
            record(builder, key, begun)
    except (Refused, ToolFailed) as refused:
        begun = replace(begun, status="failed", error=OperationError("Refused", refused.message))
        record(builder, key, begun)
    return begun


def _close(builder: EntryBuilder, key: str, begun: Operation) -> Operation:
    """Record the end of a sub-chat, which the chat no longer needs to keep."""
    child = child_of(builder.state, begun.ref)
    if child is None:  # impossible while the operation is open
        ended = replace(begun, status="failed", error=OperationError("Lost", "the sub-chat is no longer known"))
    else:
        result = ChildResult(
            chat_id=child.chat_id, outcome=child.outcome or "", text=child.text, message_id=child.message_id
        )
        ended = replace(begun, status="done", value=encoded(result))
    record(builder, key, ended)
    close_children(builder, begun.ref)
    return ended
