"""Publishes the reports of a running tool: its progress, and events for clients (EVT-9, EVT-19)."""

from collections.abc import Callable

from threadcast.agent_loop.calls.client_events import Emitted, as_event
from threadcast.agent_loop.steps import RunTool
from threadcast.chat.owner_state import OwnerState
from threadcast.chat.runs import asking_message_id
from threadcast.tools.context import ClientEvent, Report
from threadcast_protocol.wire.events import ToolStatus

__all__ = ["reporter"]


def reporter(
    state: OwnerState, step: RunTool, offer: Callable[[ToolStatus | Emitted], None]
) -> Callable[[Report], None]:
    """Return the callback that receives the reports of the tool of `step`. `offer` publishes an event and must not
    wait."""

    def report(progress: Report) -> None:
        if isinstance(progress, ClientEvent):
            event = as_event(progress)
            if event is not None:
                offer(event)
            return
        offer(
            ToolStatus(
                tool_call_id=step.call.id,
                name=step.call.function.name,
                message_id=asking_message_id(state, step.call.id),
                index=step.index,
                status="progress",
                stage=progress.stage,
                message=progress.message,
                progress=progress.fraction,
                data=progress.data,
            )
        )

    return report
