"""When the requested model is down, the profile's next model answers, in the same round and message."""

from collections.abc import AsyncGenerator

import pytest

from tests.unit.actor_harness import Harness, say
from threadcast.chat.owner_state import OwnerState
from threadcast.profiles.profile import Profile
from threadcast.providers.base import Delta, Finished, ModelInfo, ModelNamed, ProviderData, Request, TextDelta
from threadcast.providers.failures import Cause, model_failed
from threadcast_protocol.wire.events import ErrorHappened, RuntimeUpdated

pytestmark = pytest.mark.anyio


class Moody:
    """A provider that fails in the way that a test sets, after this many words. It counts its calls."""

    def __init__(self, name: str, fails: Cause | None = None, *, words: int = 0, named: str = "") -> None:
        self.name = name
        self._fails: Cause | None = fails
        self._words = words
        self._named = named
        self.asked: list[Request] = []

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        self.asked.append(request)
        for _ in range(self._words):
            yield TextDelta(f"{self.name} ")
        if self._fails is not None:
            raise model_failed(self._fails)
        if self._named:
            yield ModelNamed(self._named)
        yield TextDelta(f"from {self.name}")
        yield ProviderData({"handle": self.name})
        yield Finished("stop")

    def models(self) -> list[ModelInfo]:
        return []

    def samplers(self, model: str) -> frozenset[str]:
        return frozenset()

    def prefills(self, model: str) -> bool:
        return False

    async def aclose(self) -> None:
        return None


async def answered_by(*providers: Moody, model: str = "a/m", fallback: list[str] | None = None) -> Harness:
    """Yield a harness in which one question was sent to `model`."""
    profile = Profile(name="agent", fallback=["b/m", "c/m"] if fallback is None else fallback)
    harness = Harness(providers=providers, model=model, profile=profile)
    await harness.own("w1", say("hello"))
    return harness


def calls_counted(harness: Harness, provider: str, code: str) -> float | None:
    return harness.metrics.registry.get_sample_value(
        "threadcast_model_calls_total", {"provider": provider, "outcome": code}
    )


def last(state: OwnerState) -> tuple[str, str | None, str | None]:
    leaf = state.nodes[state.path[-1]]
    return str(leaf.content), leaf.model, state.runtime.outcome


@pytest.mark.row("EVT-14")
@pytest.mark.parametrize("cause", ["connection", "timeout", "rate_limited", "server_error", "auth_failed", "empty"])
async def test_the_next_model_answers_when_the_first_is_down_before_its_first_word(cause: Cause) -> None:
    harness = await answered_by(Moody("a", cause), Moody("b"), Moody("c"))
    state = await harness.state()
    assert last(state) == ("from b", "b/m", "complete")
    assert state.nodes[state.path[-1]].extra["model"] == "b/m"
    (echo,) = state.private.provider_data.values()
    assert echo.provider == "b", "what a provider wants back goes back to that provider"
    events = await harness.events()
    assert not [event for event in events if isinstance(event, ErrorHappened)]
    notes = [e.status_text for e in events if isinstance(e, RuntimeUpdated)]
    assert "asking b/m instead" in notes
    assert notes[-1] is None
    assert state.runtime.round == 0
    code = {"server_error": "llm_error", "empty": "llm_error"}.get(cause, cause)
    assert (calls_counted(harness, "a", code), calls_counted(harness, "b", "ok")) == (1, 1)


async def test_the_providers_own_word_for_its_model_stands_above_ours() -> None:
    harness = await answered_by(Moody("a", "connection"), Moody("b", named="m-2026"))
    state = await harness.state()
    assert last(state)[:2] == ("from b", "m-2026")
    assert state.nodes[state.path[-1]].extra["model"] == "m-2026"


async def test_a_whole_list_that_is_down_is_an_error_without_a_trace() -> None:
    harness = await answered_by(Moody("a", "connection"), Moody("b", "timeout"), Moody("c", "rate_limited"))
    state = await harness.state()
    assert len(state.path) == 1
    assert state.runtime.outcome == "error"
    errors = [e.code for e in await harness.events() if isinstance(e, ErrorHappened)]
    assert errors == ["rate_limited"]


async def test_after_its_first_word_nobody_takes_over() -> None:
    first, second = Moody("a", "broken", words=1), Moody("b")
    harness = await answered_by(first, second)
    content, _, outcome = last(await harness.state())
    assert (content, outcome) == ("a ", "error")
    assert second.asked == []


@pytest.mark.parametrize("cause", ["refused", "context_overflow"])
async def test_a_request_that_was_refused_is_not_passed_on(cause: Cause) -> None:
    second = Moody("b")
    harness = await answered_by(Moody("a", cause), second)
    assert (await harness.state()).runtime.outcome == "error"
    assert second.asked == []


async def test_a_provider_that_is_not_configured_counts_as_down() -> None:
    harness = await answered_by(Moody("b"), model="gone/m")
    assert last(await harness.state()) == ("from b", "b/m", "complete")


async def test_the_next_round_asks_the_first_model_again() -> None:
    first = Moody("a", "connection")
    harness = await answered_by(first, Moody("b"))
    await harness.own("w1", say("again"))
    assert len(first.asked) == 2
