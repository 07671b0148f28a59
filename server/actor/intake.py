"""From an inbox entry to what it does: read back, decided, and never able to take its chat's owner along.

A command that cannot be read back, or whose decision fails by a mistake of ours, ends in a refusal that its sender
sees; the chat goes on with the next one.
"""

import msgspec
import structlog

from protocol.commands import BeginSubchat, Command, InternalCommand, decode_inbox_body
from protocol.decider import decide
from protocol.errors import BadRequest
from protocol.facts import Progressed
from protocol.ledger import Ledger
from protocol.principal import SYSTEM, Principal
from protocol.state import ChatState
from protocol.subchats import begin_failed
from server.foreign import pass_on
from server.store.port import InboxEntry

__all__ = ["command_of", "decide_safely", "give_up"]

_log = structlog.get_logger()


def command_of(entry: InboxEntry) -> tuple[Command | InternalCommand | None, Principal]:
    """The command and who asked; None for what cannot be read back: it is refused, not lost."""
    by = SYSTEM
    try:
        by = msgspec.json.decode(entry.principal, type=Principal)
        return decode_inbox_body(entry.body), by
    except (BadRequest, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as unreadable:
        _log.error("command.unreadable", client_request_id=entry.request_id, error=str(unreadable))
        return None, by


def decide_safely(
    ledger: Ledger,
    command: Command | InternalCommand | None,
    entry: InboxEntry,
    by: Principal,
    source: ChatState | None,
) -> None:
    """`decide`, or a refusal and no half of an effect. `source`: see there."""
    if command is None:
        ledger.note(Progressed())
        ledger.refuse(entry.request_id, "internal", "the command could not be read back", by=by)
        return
    before = ledger.state, len(ledger.events), len(ledger.facts), len(ledger.acks)
    try:
        decide(ledger, command, by, source=source)
    except BaseException as wrong:  # the boundary of a command: a mistake fails it, and the chat goes on
        pass_on(wrong)
        _log.exception("command.crashed", chat_id=ledger.state.chat_id, client_request_id=entry.request_id)
        ledger.state, events, facts, acks = before
        del ledger.events[events:], ledger.facts[facts:], ledger.acks[acks:]
        give_up(ledger, command, entry, by, "internal", "the command failed inside the server")


def give_up(
    ledger: Ledger,
    command: Command | InternalCommand | None,
    entry: InboxEntry,
    by: Principal,
    code: str,
    sentence: str,
) -> None:
    """Refuse what cannot be carried out; the next command has its own three tries. Whoever waits for a chat that was
    to begin with it hears of it too."""
    ledger.note(Progressed())
    ledger.refuse(entry.request_id, code, sentence, by=by)
    if isinstance(command, BeginSubchat):
        begin_failed(ledger, command, "The chat could not begin: its server failed.")
