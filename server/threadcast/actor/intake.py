"""Reads a command from its inbox entry, decides it, and finds the run's next step.

A command that cannot be read, or whose decision fails because of a bug, is refused. Its sender sees the refusal, and
the chat continues with the next command.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, Protocol

import msgspec
import structlog
from msgspec.structs import replace

from threadcast.actor.retry_policy import RetryPolicy
from threadcast.actor.writer import Writer
from threadcast.agent_loop.plan import advance, is_worked_on
from threadcast.agent_loop.recovery import recover
from threadcast.agent_loop.steps import Step, Wait
from threadcast.base.boundary import pass_on
from threadcast.base.large_reads import in_large_read
from threadcast.chat.copies import drop_copy, has_unfinished_copy
from threadcast.chat.decider import decide
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.facts import Progressed
from threadcast.chat.internal_commands import BeginSubchat, InternalCommand, StoredCommand, decode_inbox_body
from threadcast.chat.owner_state import OwnerState
from threadcast.chat.runs import tell_failure
from threadcast.chat.subchats import begin_failed
from threadcast.profiles.profile import ChatTools
from threadcast.store.ports import Blobs, Inbox, InboxEntry
from threadcast_protocol.wire.commands import Command, Queueable
from threadcast_protocol.wire.errors import BadRequest, Unavailable
from threadcast_protocol.wire.failures import COMMAND_CRASHED, POISON, UNREADABLE, Failure
from threadcast_protocol.wire.principal import SYSTEM, Principal

__all__ = [
    "carry_out",
    "command_of",
    "drop_body",
    "end_unfinished_copy",
    "forget_takeovers",
    "give_up",
    "give_up_first",
    "read_command",
    "waited_seconds",
]

_log = structlog.get_logger()

DEAD_LETTER_MAX_BYTES = 1_048_576
"""The maximum bytes of a command that a dead letter keeps: as many as the inbox holds itself."""


class Commands(Blobs, Inbox, Protocol):
    """The parts of the store that hold commands."""


class Waiting(NamedTuple):
    """A command of the inbox, and its sender. The command is None if it cannot be read; then it will be refused. `body`
    is what its sender has posted, and `blob` the blob that holds the body of a large command, else ''."""

    command: Command | InternalCommand | None
    by: Principal
    body: bytes
    blob: str


async def read_command(store: Commands, retry_policy: RetryPolicy, writer: Writer, entry: InboxEntry) -> Waiting:
    """Read a command, if it is large from its blob. Raises Lost."""
    command, by = command_of(entry)
    if not isinstance(command, StoredCommand):
        return Waiting(command, by, entry.body, "")
    name = command.blob
    blob = await retry_policy.until_answered(lambda: store.get_blob(writer.state.chat_id, writer.owner, name))
    if blob is None:
        _log.error("command.lost_its_body", client_request_id=entry.request_id)
        return Waiting(None, by, entry.body, name)
    whole = replace(entry, body=blob.data)
    command, by = await in_large_read(lambda: command_of(whole))
    return Waiting(None if isinstance(command, StoredCommand) else command, by, blob.data, name)


async def drop_body(store: Commands, writer: Writer, blob: str) -> None:
    """Delete the blob of a command that was consumed, if it has one. Without an answer of the store the blob expires
    later."""
    if blob:
        with suppress(Unavailable):
            await store.drop_blob(writer.state.chat_id, writer.owner, blob)


def waited_seconds(entry: InboxEntry) -> float:
    """Return the seconds for which a command has waited, by the store's clock and ours."""
    return max(0.0, time.time() - int(entry.inbox_id.partition("-")[0]) / 1_000)


def command_of(entry: InboxEntry) -> tuple[Command | InternalCommand | None, Principal]:
    """Return the command in the body of `entry` and its sender; None if the body cannot be read."""
    by = SYSTEM
    try:
        by = msgspec.json.decode(entry.principal, type=Principal)
        return decode_inbox_body(entry.body), by
    except (BadRequest, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as unreadable:
        _log.error("command.unreadable", client_request_id=entry.request_id, error=str(unreadable))
        return None, by


def carry_out(
    tools_of: Callable[[OwnerState], ChatTools],
    builder: EntryBuilder,
    command: Command | InternalCommand | None,
    by: Principal,
    *,
    request_id: str,
    source: OwnerState | None,
    is_stopped: bool,
    advance: Callable[[EntryBuilder, ChatTools], Step] = advance,
) -> Step:
    """Write the effects of a command, and return the next step of the run.

    `tools_of` returns the tools of a chat. `command` and `by` are the result of `read_command`; `request_id` is known
    even if the command could not be read. `source`: see `decide`. `is_stopped` is true if the run's task was stopped
    for this command. While a task works on the run, that task announces the run's next step, and this function returns
    `Wait`; otherwise `advance` announces it. If a bug raises an error, the command is refused and has no other effect.
    """
    table = tools_of(builder.state)
    is_held = is_worked_on(builder.state) and not is_stopped
    try:
        with builder.all_or_nothing():
            if command is None:
                give_up(builder, command, request_id, by, UNREADABLE)
            else:
                decide(builder, command, by, source=source, rules=table.rules)
    except BaseException as wrong:  # the boundary of a command: a bug fails the command, and the chat continues
        pass_on(wrong)
        _log.exception("command.crashed", chat_id=builder.state.chat_id, client_request_id=request_id)
        give_up(builder, command, request_id, by, COMMAND_CRASHED)
    if is_held:
        return Wait()
    if is_stopped and is_worked_on(builder.state):  # settle the calls and the answer that the stopped task left open
        recover(builder, table, can_continue=False)
    return advance(builder, table)


def give_up(
    builder: EntryBuilder,
    command: Command | InternalCommand | None,
    request_id: str,
    by: Principal,
    failure: Failure,
) -> None:
    """Refuse a command that cannot be carried out. For the next command the count of takeovers begins at zero.

    Only the program that sent the command handles the refusal. If the command asked for an answer or an edit, the chat
    therefore also gets a permanent message with the role `error`, which every reader sees. That message contains
    nothing of the command, because the content may have killed the workers. If the command was to begin a sub-chat, the
    calling chat is told, too.
    """
    builder.note(Progressed())
    builder.refuse(request_id, failure.code, failure.message, by=by)
    if isinstance(command, Queueable):
        tell_failure(builder, failure)
    elif isinstance(command, BeginSubchat):
        begin_failed(builder, command, "The chat could not begin: its server failed.")


async def end_unfinished_copy(writer: Writer) -> None:
    """Remove the messages that a former owner had copied before it died. The command of the copy still waits, and is
    carried out anew, unless the store has lost it. Raises Fenced, Lost."""
    if has_unfinished_copy(writer.state):
        await writer.commit(drop_copy)


async def forget_takeovers(writer: Writer) -> None:
    """Begin the count of takeovers anew in a chat without work, whose former owners died of something else. Raises
    Fenced, Lost."""
    if writer.state.private.attempts:
        await writer.commit(lambda builder: builder.note(Progressed()))


async def give_up_first(store: Commands, retry_policy: RetryPolicy, writer: Writer) -> None:
    """Refuse the first command of the inbox, if there is one, because it has killed its workers. A copy is kept among
    the dead letters, before the append that consumes the command.

    Raises: Fenced, Lost: another worker owns the chat.
    """
    chat_id = writer.state.chat_id
    waiting = await retry_policy.until_answered(lambda: store.read_inbox(chat_id, 1))
    if not waiting:
        return
    entry = waiting[0]
    _log.error("command.poisoned", chat_id=chat_id, client_request_id=entry.request_id)
    command, by, body, blob = await read_command(store, retry_policy, writer, entry)
    dead = replace(entry, body=body[:DEAD_LETTER_MAX_BYTES])
    await retry_policy.until_answered(lambda: store.dead_letter(chat_id, dead, "poison"))
    await writer.commit(lambda builder: give_up(builder, command, entry.request_id, by, POISON), (entry,))
    await drop_body(store, writer, blob)
