"""What happens when a waiting command's turn comes: a run begins, or the tree is edited, or both (PROTOCOL §9).

`start_next` is called whenever the chat may rest. A command is checked before its first event, so that one which
cannot be applied ends in a refusal and nothing else, and the next one is looked at. What a run does once it is open is
the agent's plan.
"""

import msgspec
from msgspec.structs import replace

from protocol.blobs import attachments_of
from protocol.commands import (
    ContinueMessage,
    Queueable,
    Regenerate,
    RemoveMessage,
    RetryFromIndex,
    UpdateMessage,
    UserMessage,
)
from protocol.content import edited, read_content
from protocol.edits import cut, end_of_turn, index_of, regenerate_from, remove, rewrite
from protocol.errors import BadRequest, Conflict, NotFound, Refused
from protocol.events import ThreadUpdated
from protocol.facts import CommandsDequeued, RunStarted
from protocol.failures import without_failure
from protocol.ledger import Ledger, shown_name
from protocol.messages import JsonObject, Message, Part, text_of
from protocol.previews import open_commit
from protocol.principal import Principal
from protocol.queue import decode_queued, mergeable, say_queue
from protocol.runtime import say_runtime
from protocol.state import Queued
from protocol.thread import Thread, read_patch

__all__ = ["first_line", "start_next"]

TITLE_MAX_CHARACTERS = 60
"""Of a title made from the first line: about what a sidebar shows."""


def start_next(ledger: Ledger) -> None:
    """Take up what waits, as long as the chat rests; accepted previews before commands, so that these find it done."""
    while ledger.state.is_at_rest and ledger.state.private.run is None:
        if ledger.state.private.commits:
            open_commit(ledger)
            return
        if not ledger.state.private.queue:
            return
        first = ledger.state.private.queue[0]
        try:
            _take_up(ledger, first, decode_queued(first))
        except Refused as refusal:
            _dequeue(ledger, [first])
            ledger.refuse(first.request_id, refusal.code, refusal.message, by=first.principal)


def _take_up(ledger: Ledger, item: Queued, command: Queueable) -> None:
    match command:
        case UserMessage():
            _say(ledger, [item, *(mergeable(ledger.state) if ledger.param("merge_queued") else [])])
        case Regenerate():
            stays = regenerate_from(ledger.state, command.message_id)
            _open_run(ledger, [item], first_index=stays, model=command.model or None)
            cut(ledger, stays)
            ledger.settle(item.request_id, accepted=True)
        case RetryFromIndex():
            _retry(ledger, item, command)
        case UpdateMessage():
            _update(ledger, item, command)
        case RemoveMessage():
            _remove(ledger, item, command)
        case ContinueMessage():
            _continue(ledger, item, command)


def _say(ledger: Ledger, batch: list[Queued]) -> None:
    """User messages, merged into one turn."""
    commands = [(item, msgspec.json.decode(item.body, type=UserMessage)) for item in batch]
    contents = [read_content(command.content, command.attachments) for _, command in commands]
    last = commands[-1][1]
    params = read_patch(last.params)
    model = params.pop("model", None) or None
    _open_run(ledger, batch, first_index=len(ledger.state.path), model=model, params=params, context=last.context)
    for (item, command), content in zip(commands, contents, strict=True):
        _add_user_message(
            ledger,
            item,
            content,
            context_files=command.context_files,
            context=command.context,
            interaction=None if command.interaction is None else msgspec.to_builtins(command.interaction),
        )
        ledger.settle(item.request_id, accepted=True)
    _introduce(ledger, batch[0].principal)


def _add_user_message(
    ledger: Ledger,
    item: Queued,
    content: str | list[Part],
    *,
    context_files: list[JsonObject] | None = None,
    context: JsonObject | None = None,
    interaction: JsonObject | None = None,
) -> None:
    ledger.add_message(
        Message(
            role="user",
            content=content,
            message_id=ledger.new_id("msg"),
            attachments=attachments_of(content, ledger.state.chat_id),
            client_request_id=item.request_id,
            by=shown_name(item.principal),
            context_files=context_files or [],
            context=context or {},
            interaction=interaction,
            created_at=item.at_ms,
        )
    )


def _retry(ledger: Ledger, item: Queued, command: RetryFromIndex) -> None:
    content = read_content(command.content, command.attachments)
    if command.index > len(ledger.state.path):
        raise NotFound(f"index is beyond the {len(ledger.state.path)} messages of the chat", path="/index")
    _open_run(ledger, [item], first_index=command.index)
    cut(ledger, command.index, prune=command.prune)
    _add_user_message(ledger, item, content)
    _introduce(ledger, item.principal)
    ledger.settle(item.request_id, accepted=True)


def _update(ledger: Ledger, item: Queued, command: UpdateMessage) -> None:
    message = ledger.state.nodes.get(command.message_id)
    if message is None:
        raise NotFound("there is no such message", path="/message_id")
    content = read_content(*edited(message.content, command.content, command.attachments))
    if command.mode == "branch":
        at = index_of(ledger.state, command.message_id)
        stays = at + 1
        _begin(ledger, item, stays if command.regenerate else None)
        cut(ledger, at)
        sibling = replace(
            without_failure(message),
            content=content,
            attachments=attachments_of(content, ledger.state.chat_id),
            message_id=ledger.new_id("msg"),
            client_request_id=item.request_id,
            by=shown_name(item.principal),
            tool_calls=[],  # they belong to the branch in which they were answered
            created_at=item.at_ms,
        )
        ledger.add_message(sibling)
    else:
        stays = end_of_turn(ledger.state, index_of(ledger.state, message.message_id)) if command.regenerate else 0
        _begin(ledger, item, stays if command.regenerate else None)
        rewrite(ledger, message, content)
        if command.regenerate:
            cut(ledger, stays)
    ledger.settle(item.request_id, accepted=True)


def _remove(ledger: Ledger, item: Queued, command: RemoveMessage) -> None:
    if not command.regenerate:
        if command.message_id not in ledger.state.nodes:
            raise NotFound("there is no such message", path="/message_id")
        _begin(ledger, item, None)
        remove(ledger, command.message_id)
    else:
        rehearsal = Ledger(ledger.state, ledger.now_ms, ledger.new_id)
        remove(rehearsal, command.message_id)
        stays = regenerate_from(rehearsal.state, None)  # refuses before anything is written
        _begin(ledger, item, stays)
        remove(ledger, command.message_id)
        cut(ledger, stays)
    ledger.settle(item.request_id, accepted=True)


def _continue(ledger: Ledger, item: Queued, command: ContinueMessage) -> None:
    """Go on writing the last answer, or go on after the results of its calls (CMD-6)."""
    state = ledger.state
    at = index_of(state, command.message_id)
    message = state.nodes[command.message_id]
    if message.role != "assistant":
        raise BadRequest("only an answer can be continued; for a user message use regenerate", path="/message_id")
    end = end_of_turn(state, at)
    if end < len(state.path):
        raise Conflict("only the last answer of the path can be continued")
    if not message.tool_calls:
        _open_run(ledger, [item], first_index=at, continues=message)
    elif end - at - 1 == len(message.tool_calls):
        _open_run(ledger, [item], first_index=end)
    else:
        stays = regenerate_from(state, command.message_id)
        _open_run(ledger, [item], first_index=stays)
        cut(ledger, stays)
    ledger.settle(item.request_id, accepted=True)


def _begin(ledger: Ledger, item: Queued, first_index: int | None) -> None:
    """Out of the queue, and into a run when there is an index that its messages start at."""
    if first_index is None:
        _dequeue(ledger, [item])
    else:
        _open_run(ledger, [item], first_index=first_index)


def _open_run(
    ledger: Ledger,
    batch: list[Queued],
    *,
    first_index: int,
    model: str | None = None,
    params: JsonObject | None = None,
    context: JsonObject | None = None,
    continues: Message | None = None,
) -> None:
    request_ids = [item.request_id for item in batch]
    ledger.note(CommandsDequeued(request_ids=request_ids))
    ledger.note(
        RunStarted(
            run_id=ledger.new_id("run"),
            principal=batch[-1].principal,
            request_ids=request_ids,
            at_ms=ledger.now_ms,
            first_index=first_index,
            model=model,
            params=params or {},
            context=context or {},
            continues=continues,
        )
    )
    say_runtime(ledger, "generating", round=0)
    say_queue(ledger)


def _dequeue(ledger: Ledger, items: list[Queued]) -> None:
    ledger.note(CommandsDequeued(request_ids=[item.request_id for item in items]))
    say_queue(ledger)


def _introduce(ledger: Ledger, by: Principal) -> None:
    """What the thread learns with its first message: whose it is, since when, a title from its first line (TREE-5)."""
    thread = ledger.state.thread
    if thread.created_at is not None:
        return
    title = first_line(ledger.state.nodes[ledger.state.path[0]])
    untitled = thread.title == Thread(id=thread.id).title
    introduction: JsonObject = {
        "created_at": ledger.now_ms,
        **({"owner": name} if (name := shown_name(by)) else {}),
        **({"title": title} if title and untitled else {}),
    }
    ledger.say(ThreadUpdated(**introduction))


def first_line(message: Message) -> str:
    """The first line of words in a message, short enough for a title."""
    line = next((line.strip() for line in text_of(message.content).splitlines() if line.strip()), "")
    return line if len(line) <= TITLE_MAX_CHARACTERS else line[: TITLE_MAX_CHARACTERS - 1].rstrip() + "…"
