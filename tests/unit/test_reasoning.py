"""Reasoning: streamed, kept for the server's log alone, or dropped (EVT-7)."""

import pytest

from tests.unit.actor_harness import CHAT, Harness, params, say
from threadcast.chat.entry_codec import decode_facts
from threadcast.chat.facts import ReasoningLogged
from threadcast_protocol.framing.codec import encode

pytestmark = pytest.mark.anyio


@pytest.mark.row("EVT-7")
@pytest.mark.parametrize(
    ("wish", "is_shown", "is_logged"), [("stream", True, False), ("log", False, True), ("off", False, False)]
)
async def test_reasoning_goes_where_the_chat_wants_it(wish: str, is_shown: bool, is_logged: bool) -> None:
    harness = Harness(model="demo/reasoning?rate=0&words=5")
    await harness.own("w1", params(reasoning=wish), say("why"))
    shown = encode(await harness.events()) + await harness.snapshot()
    assert (b"I think first" in shown) is is_shown
    facts = [fact for entry in await harness.store.read_log(CHAT) if entry.facts for fact in decode_facts(entry.facts)]
    logged = [fact.text for fact in facts if isinstance(fact, ReasoningLogged)]
    assert [("I think first" in text) for text in logged] == ([True] if is_logged else [])
