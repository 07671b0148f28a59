"""The judge of a browser window with tabs: a frame of a chat that the window does not show is a fault, unless the
window has asked for that chat and has no answer yet."""

from collections import Counter

import pytest

from tests.torture import tabs as tabs_module
from tests.torture.fold import Mistake
from tests.torture.tabs import Tabs
from tests.torture.wire import Answer, Broken
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio

CHATS = ["a", "b", "c"]


class _Lines:
    """Gives each change the answer that the test sets."""

    def __init__(self, answer: Answer | None) -> None:
        self._answer = answer

    async def request(self, *_: object, **__: object) -> Answer:
        if self._answer is None:
            raise Broken("no answer")
        return self._answer


async def blamed(answer: Answer | None, change: JsonObject, *kinds: str) -> list[str]:
    """Request that change, and return the chats of which the window then excuses mistakes."""
    window = Tabs(1, CHATS, [1], "seed", [], Counter())
    window._lines = _Lines(answer)  # type: ignore[assignment]  # it only asks
    await window._ask(change)
    return [c for c in CHATS for kind in kinds if window._is_of_my_making(Mistake(kind, "", c))]


LOST, AWAY, DONE = None, Answer(503, b""), Answer(200, b"")
ADD: JsonObject = {"add": [{"chat_id": "b"}]}


@pytest.mark.parametrize(
    ("answer", "change", "kinds", "excused"),
    [
        (LOST, ADD, ["seq"], ["b"]),
        (LOST, ADD, ["removed"], ["b"]),
        (AWAY, ADD, ["seq"], ["b"]),
        (LOST, ADD, ["frame", "forged"], []),
        (DONE, ADD, ["seq", "removed"], []),
        (LOST, {"remove": ["b"]}, ["seq", "removed"], []),
    ],
)
async def test_a_window_answers_for_the_chats_of_an_addition_that_was_lost_alone(
    answer: Answer | None, change: JsonObject, kinds: list[str], excused: list[str]
) -> None:
    assert await blamed(answer, change, *kinds) == excused


async def test_a_chat_resumes_where_it_was_left_only_when_every_removal_was_seen() -> None:
    window = Tabs(1, CHATS, [1], "seed", [], Counter())
    window._query()
    window._last_id = "left"

    def beginnings() -> list[JsonObject]:
        return [window._place_of("b") for _ in range(20)]

    window._unseen.update("b")
    assert {"from": "left"} not in beginnings(), "its removal is under way"
    window._leave_out("b", "")
    assert {"from": "left"} in beginnings()
    window._unseen.update("b")
    assert {"from": "left"} not in beginnings(), "it was added and is removed again, and its events may be under way"
    window._leave_out("b", "")
    assert {"from": "left"} in beginnings()


async def test_it_answers_for_them_no_longer_than_an_addition_may_be_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tabs_module, "LATE_SECONDS", 0.0)
    assert await blamed(LOST, ADD, "seq", "removed") == []
