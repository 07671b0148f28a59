"""A refused command changes nothing. In every state of a chat, the test makes each write of a decision raise a refusal
once."""

from collections.abc import Callable

import pytest
from hypothesis import given

from tests.unit.pure_chat import PureChat
from tests.unit.test_every_command_in_every_state import COMMANDS, STATES, fate
from tests.unit.test_tree import EDITS, edit_of, talk
from threadcast.chat.decider import decide
from threadcast.chat.edits import path_without, remove
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.facts import Fact, Progressed
from threadcast.chat.owner_state import OwnerState
from threadcast_protocol.framing.codec import Relayed
from threadcast_protocol.wire.commands import Command
from threadcast_protocol.wire.errors import Conflict
from threadcast_protocol.wire.events import Ack, Event
from threadcast_protocol.wire.principal import LOCAL

WRITES_MAX = 100
"""Number of attempts: more than the writes of any of these decisions, so that the last attempts end without a
refusal."""


class Refusing(EntryBuilder):
    """Refuses the write with this number; with None it refuses no write. `writes_count` counts them."""

    number: int | None = None
    writes_count = 0

    def _count(self) -> None:
        self.writes_count += 1
        if self.writes_count - 1 == self.number:
            raise Conflict("this write refuses")

    def say(self, event: Event | Relayed) -> None:
        super().say(event)
        if not isinstance(event, Ack) or event.accepted:  # the write that records the refusal is not refused
            self._count()

    def note(self, fact: Fact) -> None:
        super().note(fact)
        self._count()


def builder_of(chat: PureChat, number: int | None) -> Refusing:
    ids = iter(range(1_000))
    builder = Refusing(chat.state, chat.now_ms, lambda prefix: f"{prefix}-new-{next(ids)}")
    builder.number = number
    return builder


REFUSED_AT_ONCE = [(False, True)]
REFUSED_AT_ONCE_OR_LATER = (REFUSED_AT_ONCE, [(True, False), (False, True)])
"""The acks of one command: whether it was accepted, and whether the ack is final."""


def what_people_see(state: OwnerState) -> object:
    """Return the state without acks, because acks report the refusal, and without the order of the queue's keys."""
    return (state.nodes, state.path, state.thread, state.draft, state.payloads, state.runtime, state.private.run)


@pytest.mark.parametrize("kind", COMMANDS)
@pytest.mark.parametrize("state", STATES)
def test_a_refusal_at_any_write_leaves_the_chat_as_it_was(state: str, kind: str) -> None:
    chat = STATES[state]()
    command = COMMANDS[kind]("x", chat.state)
    refused_count = 0
    for number in range(1, WRITES_MAX):  # the first write records progress, even if the decision fails
        builder = builder_of(chat, number)
        decide(builder, command, LOCAL)
        if builder.writes_count <= number:
            break
        mine = [(ack.accepted, ack.final) for ack in builder.acks if ack.request_id == "x"]
        assert mine in REFUSED_AT_ONCE_OR_LATER, "it is refused once, and not also done"
        refused_count += 1
        if mine == REFUSED_AT_ONCE:
            assert what_people_see(builder.state) == what_people_see(chat.state)
            assert builder.state.private.queue == chat.state.private.queue
            assert [type(fact) for fact in builder.facts] == [Progressed]
        elif chat.state.private.run is None:
            assert what_people_see(builder.state) == what_people_see(chat.state)
        else:  # it interrupted a run, and was refused when its turn came
            assert builder.state.private.run is None
    else:
        pytest.fail("a decision makes more writes than this test expects")
    assert refused_count or fate(state, kind) not in ("acts", "waits")


def test_what_is_taken_back_is_what_the_block_added() -> None:
    chat = talk("hi")
    builder = builder_of(chat, None)
    builder.settle("earlier", accepted=True)
    kept = builder.state
    with pytest.raises(Conflict), builder.all_or_nothing():
        builder.accept("x", {}, by=LOCAL, final=True)
        remove(builder, chat.state.path[0])
        raise Conflict("no")
    assert builder.state is kept
    assert (builder.events, builder.facts, [ack.request_id for ack in builder.acks]) == ([], [], ["earlier"])


@given(EDITS)
def test_the_path_without_a_message_is_the_path_after_its_removal(edits: list[tuple[str, int]]) -> None:
    chat = talk("a", "b")
    make: Callable[..., Command] = edit_of
    for number, (kind, pick) in enumerate(edits):
        if chat.state.path:
            at = pick % len(chat.state.path)
            chat.command(make(kind, f"e{number}", chat.state.path[at], at, pick))
    for message_id in chat.state.nodes:
        builder = EntryBuilder(chat.state, chat.now_ms, chat.new_id)
        remove(builder, message_id)
        assert builder.state.path == path_without(chat.state, message_id)
