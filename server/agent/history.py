"""What the model sees of a chat: the active path, without what is not meant for it (HIST-1).

Pass-through roles (`event`, `diff`, `plan`, …) never reach a model. An answer that was cut off is shown with what it
has; one that has nothing is left out. Every call on the path is answered, because runs answer their calls before they
end; a call that is not (an imported chat, a foreign client) is left out together with its fragments.
"""

from msgspec.structs import replace

from protocol.messages import Message
from protocol.state import ChatState

__all__ = ["model_view"]

MODEL_ROLES = frozenset({"user", "assistant", "system", "tool"})


def model_view(state: ChatState) -> list[Message]:
    """The messages of the active path for the next model call; the open draft is not among them."""
    drafted = state.draft.message.message_id if state.draft is not None else None
    path = [state.nodes[key] for key in state.path if key != drafted]
    answered = {message.tool_call_id for message in path if message.role == "tool"}
    called: set[str] = set()
    view: list[Message] = []
    for message in path:
        if message.role not in MODEL_ROLES:
            continue
        if message.role == "assistant":
            calls = [call for call in message.tool_calls if call.id in answered]
            called.update(call.id for call in calls)
            if not calls and not message.content:
                continue
            view.append(replace(message, tool_calls=calls))
        elif message.role != "tool" or message.tool_call_id in called:
            view.append(message)
    return view
