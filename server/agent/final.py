"""The last word on a run's answer: markers out of the text, suggestions and payloads on the message (EVT-18).

Pure. The raw text was streamed and stands in the log; what people keep is the cleaned one. Where there is nothing to
clean or to add, nothing is said.
"""

from msgspec.structs import replace

from protocol.events import MessageUpdated
from protocol.ledger import Ledger
from protocol.runtime import context_use
from server.agent.markers import cut_out, suggested_actions, suggested_values

__all__ = ["CONTEXT_WARN_RATIO", "say_final_word"]

CONTEXT_WARN_RATIO = 0.7
"""Of the model's window in use, from which on people are warned, unless a profile says otherwise (HIST-7)."""


def say_final_word(ledger: Ledger, *, warn_ratio: float = CONTEXT_WARN_RATIO) -> None:
    """`message_updated` of the run's last answer, if it becomes another by that."""
    state = ledger.state
    run, leaf = state.private.run, state.leaf
    if run is None or leaf is None or leaf.role != "assistant" or not isinstance(leaf.content, str):
        return
    text, values = cut_out(leaf.content, "SUGGESTED_VALUES")
    text, actions = cut_out(text, "SUGGESTED_ACTIONS")
    of_run = set(state.path[run.first_index :])
    payloads = [payload.payload_id for payload in state.payloads if payload.message_id in of_run]
    use = context_use(state)
    is_tight = use is not None and use.total is not None and use.used >= warn_ratio * use.total
    final = replace(
        leaf,
        content=text,
        suggested_values=suggested_values(values) or leaf.suggested_values,
        suggested_actions=suggested_actions(actions) or leaf.suggested_actions,
        payloads=payloads,
        active_payload_id=payloads[-1] if payloads else None,
        warning="The conversation fills most of the model's window; begin a new one soon." if is_tight else None,
    )
    if final != leaf:
        ledger.say(MessageUpdated(leaf.message_id, final))
