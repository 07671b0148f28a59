"""Starts waiting commands: opens runs, edits the tree, or both (PROTOCOL §9).

`start_next` is called whenever a run may have ended. A command that cannot be applied is refused without any other
effect, and the next command is tried. The agent's plan decides the steps of an open run.
"""

import msgspec
from msgspec.structs import replace

from threadcast.chat.edits import cut, end_of_exchange, index_of, path_without, regenerate_from, remove, rewrite
from threadcast.chat.entry_builder import EntryBuilder, shown_name
from threadcast.chat.facts import CommandsDequeued, RunStarted, ToolsDeclared
from threadcast.chat.owner_state import OwnerState, Queued
from threadcast.chat.previews import open_commit
from threadcast.chat.queue import decode_queued, mergeable, say_queue
from threadcast.chat.runtime import say_runtime
from threadcast_protocol.wire.blobs import attachments_of
from threadcast_protocol.wire.commands import (
    ContinueMessage,
    DeclaredTool,
    Regenerate,
    RemoveMessage,
    RetryFromIndex,
    UpdateMessage,
    UserMessage,
)
from threadcast_protocol.wire.content import edited, read_content
from threadcast_protocol.wire.decoders import decoder
from threadcast_protocol.wire.errors import BadRequest, Conflict, NotFound, Refused
from threadcast_protocol.wire.events import ThreadUpdated
from threadcast_protocol.wire.failures import without_failure
from threadcast_protocol.wire.messages import JsonObject, Message, Part, text_of
from threadcast_protocol.wire.principal import Principal
from threadcast_protocol.wire.thread import Thread, read_patch

__all__ = ["birth", "first_line", "first_question", "start_next", "take_steered"]

_user_messages: msgspec.json.Decoder[UserMessage] = decoder(UserMessage)

TITLE_MAX_CHARACTERS = 60
"""The maximum length of a title that is made from a first line. This length is about the width of a sidebar."""


def start_next(builder: EntryBuilder) -> None:
    """Start waiting previews and commands until a run is open. Accepted previews are started before commands, so that
    the commands see the results of the previews."""
    while builder.state.is_at_rest and builder.state.private.run is None:
        if builder.state.private.commits:
            open_commit(builder)
            return
        if not builder.state.private.queue:
            return
        first = builder.state.private.queue[0]
        batch = [first]
        try:
            with builder.all_or_nothing():
                match decode_queued(first):
                    case UserMessage():
                        batch += mergeable(builder.state) if builder.param("merge_queued") else []
                        _say(builder, batch)
                    case Regenerate() as command:
                        stays = regenerate_from(builder.state, command.message_id)
                        _open_run(builder, [first], first_index=stays, model=command.model or None)
                        cut(builder, stays)
                    case RetryFromIndex() as command:
                        _retry(builder, first, command)
                    case UpdateMessage() as command:
                        _update(builder, first, command)
                    case RemoveMessage() as command:
                        _remove(builder, first, command)
                    case ContinueMessage() as command:
                        _continue(builder, first, command)
                for item in batch:
                    builder.settle(item.request_id, accepted=True)
        except Refused as refusal:
            _dequeue(builder, [first])
            builder.refuse(first.request_id, refusal.code, refusal.message, by=first.principal)


def _say(builder: EntryBuilder, batch: list[Queued]) -> None:
    """Open a run for one or several merged user messages."""
    commands = [(item, _user_messages.decode(item.body)) for item in batch]
    contents = [read_content(command.content, command.attachments) for _, command in commands]
    last = commands[-1][1]
    params = read_patch(last.params)
    model = params.pop("model", None) or None
    _open_run(builder, batch, first_index=len(builder.state.path), model=model, params=params, context=last.context)
    for (item, command), content in zip(commands, contents, strict=True):
        _add_user_message(
            builder,
            item,
            content,
            context_files=command.context_files,
            context=command.context,
            interaction=None if command.interaction is None else msgspec.to_builtins(command.interaction),
            tools=command.tools,
        )
    _introduce(builder, batch[0].principal)


def take_steered(builder: EntryBuilder) -> list[str]:
    """Add the waiting user messages with priority to the path of the open run, and return the ids of the messages. The
    run's parameters do not change."""
    waiting = zip(builder.state.private.queue, builder.state.runtime.queued_items, strict=True)
    taken = [(item, decode_queued(item)) for item, shown in waiting if shown.priority]
    messages = [(item, command) for item, command in taken if isinstance(command, UserMessage)]
    if not messages:
        return []
    builder.note(CommandsDequeued(request_ids=[item.request_id for item, _ in messages]))
    begin = len(builder.state.path)
    for item, command in messages:
        content = read_content(command.content, command.attachments)
        _add_user_message(builder, item, content, context_files=command.context_files, context=command.context)
        builder.settle(item.request_id, accepted=True)
    say_queue(builder)
    return list(builder.state.path[begin:])


def _add_user_message(
    builder: EntryBuilder,
    item: Queued,
    content: str | list[Part],
    *,
    context_files: list[JsonObject] | None = None,
    context: JsonObject | None = None,
    interaction: JsonObject | None = None,
    tools: list[DeclaredTool] | None = None,
) -> None:
    message_id = builder.new_id("msg")
    if tools:
        builder.note(ToolsDeclared(message_id=message_id, tools=tools))
    builder.add_message(
        Message(
            role="user",
            content=content,
            message_id=message_id,
            attachments=attachments_of(content, builder.state.chat_id),
            client_request_id=item.request_id,
            by=shown_name(item.principal),
            context_files=context_files or [],
            context=context or {},
            interaction=interaction,
            created_at=item.at_ms,
        )
    )


def _retry(builder: EntryBuilder, item: Queued, command: RetryFromIndex) -> None:
    content = read_content(command.content, command.attachments)
    if command.index > len(builder.state.path):
        raise NotFound(f"index is beyond the {len(builder.state.path)} messages of the chat", path="/index")
    params = read_patch(command.params)
    model = params.pop("model", None) or None
    _open_run(builder, [item], first_index=command.index, model=model, params=params)
    tools = command.tools
    if tools is None and command.index < len(builder.state.path):
        tools = builder.state.private.declared_tools.get(builder.state.path[command.index])
    cut(builder, command.index, prune=command.prune)
    _add_user_message(builder, item, content, tools=tools)
    _introduce(builder, item.principal)


def _update(builder: EntryBuilder, item: Queued, command: UpdateMessage) -> None:
    message = builder.state.nodes.get(command.message_id)
    if message is None:
        raise NotFound("there is no such message", path="/message_id")
    if command.tools and message.role != "user":
        raise BadRequest("only a message of the user has tools; send the edit without tools", path="/tools")
    content = read_content(*edited(message.content, command.content, command.attachments))
    if command.mode == "branch":
        at = index_of(builder.state, command.message_id)
        stays = at + 1
        _begin(builder, item, stays if command.regenerate else None)
        cut(builder, at)
        sibling = replace(
            without_failure(message),
            content=content,
            attachments=attachments_of(content, builder.state.chat_id),
            message_id=builder.new_id("msg"),
            client_request_id=item.request_id,
            by=shown_name(item.principal),
            tool_calls=[],  # calls belong to the branch that has their answers
            created_at=item.at_ms,
        )
        builder.add_message(sibling)
        old = builder.state.private.declared_tools.get(message.message_id)
        if tools := old if command.tools is None else command.tools:
            builder.note(ToolsDeclared(message_id=sibling.message_id, tools=tools))
    else:
        stays = end_of_exchange(builder.state, index_of(builder.state, message.message_id)) if command.regenerate else 0
        _begin(builder, item, stays if command.regenerate else None)
        rewrite(builder, message, content)
        if command.tools is not None:
            builder.note(ToolsDeclared(message_id=message.message_id, tools=command.tools))
        if command.regenerate:
            cut(builder, stays)


def _remove(builder: EntryBuilder, item: Queued, command: RemoveMessage) -> None:
    path = path_without(builder.state, command.message_id)
    stays = regenerate_from(replace(builder.state, path=path), None) if command.regenerate else None
    _begin(builder, item, stays)
    remove(builder, command.message_id)
    if stays is not None:
        cut(builder, stays)


def _continue(builder: EntryBuilder, item: Queued, command: ContinueMessage) -> None:
    """Continue the last answer, or continue after the results of its calls (CMD-6). If some of these results are
    missing, the answer is generated again."""
    state = builder.state
    at = index_of(state, command.message_id)
    message = state.nodes[command.message_id]
    if message.role != "assistant":
        raise BadRequest("only an answer can be continued; for a user message use regenerate", path="/message_id")
    if message.extra.get("durable"):
        raise Conflict("the answer of a durable agent cannot be continued; use regenerate, which runs the agent again")
    end = end_of_exchange(state, at)
    if end < len(state.path):
        raise Conflict("only the last answer of the path can be continued")
    if not message.tool_calls:
        _open_run(builder, [item], first_index=at, continues=message)
    elif end - at - 1 == len(message.tool_calls):
        _open_run(builder, [item], first_index=end)
    else:
        stays = regenerate_from(state, command.message_id)
        _open_run(builder, [item], first_index=stays)
        cut(builder, stays)


def _begin(builder: EntryBuilder, item: Queued, first_index: int | None) -> None:
    """Remove `item` from the queue. If there is a `first_index`, open a run whose messages start at this index."""
    if first_index is None:
        _dequeue(builder, [item])
    else:
        _open_run(builder, [item], first_index=first_index)


def _open_run(
    builder: EntryBuilder,
    batch: list[Queued],
    *,
    first_index: int,
    model: str | None = None,
    params: JsonObject | None = None,
    context: JsonObject | None = None,
    continues: Message | None = None,
) -> None:
    request_ids = [item.request_id for item in batch]
    builder.note(CommandsDequeued(request_ids=request_ids))
    builder.note(
        RunStarted(
            run_id=builder.new_id("run"),
            principal=batch[-1].principal,
            request_ids=request_ids,
            at_ms=builder.now_ms,
            first_index=first_index,
            model=model,
            params=params or {},
            context=context or {},
            continues=continues,
        )
    )
    say_runtime(builder, "generating", round=0)
    say_queue(builder)


def _dequeue(builder: EntryBuilder, items: list[Queued]) -> None:
    builder.note(CommandsDequeued(request_ids=[item.request_id for item in items]))
    say_queue(builder)


def _introduce(builder: EntryBuilder, by: Principal) -> None:
    """Set the owner, the creation time and a title from the first line, if this is the first message of the thread
    (TREE-5)."""
    thread = builder.state.thread
    if thread.created_at is not None:
        return
    question = first_question(builder.state)
    title = first_line(question) if question is not None else ""
    untitled = thread.title == Thread(id=thread.id).title
    introduction = birth(builder, by)
    if title and untitled:
        introduction["title"] = title
    builder.say(ThreadUpdated(**introduction))


def birth(builder: EntryBuilder, by: Principal) -> JsonObject:
    """Return the creation time and the owner of a new thread. Without authentication, the thread has no owner."""
    name = shown_name(by)
    return {"created_at": builder.now_ms, **({"owner": name} if name else {})}


def first_question(state: OwnerState) -> Message | None:
    """Return the first message of the active path if its role is user, else None. Messages with the role `error` are
    skipped."""
    first = next((state.nodes[key] for key in state.path if state.nodes[key].role != "error"), None)
    return first if first is not None and first.role == "user" else None


def first_line(message: Message) -> str:
    """Return the first line with text in a message, cut to the length of a title."""
    line = next((line.strip() for line in text_of(message.content).splitlines() if line.strip()), "")
    return line if len(line) <= TITLE_MAX_CHARACTERS else line[: TITLE_MAX_CHARACTERS - 1].rstrip() + "…"
