"""Judges one run of a framework's agent whose owner was killed."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from types import ModuleType

from tests.faults.durable.app import UNKNOWN
from tests.faults.durable.story import SLACK_SECONDS, Phase, Story, has_answers, shown_characters
from tests.support.reader import Watcher
from threadcast_protocol.wire.events import PauseRequired
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["PHASES", "judge_of"]


def _was_asked(watcher: Watcher) -> bool:
    return any(isinstance(event, PauseRequired) for event in watcher.events)


def _is_asked(watcher: Watcher) -> bool:
    return watcher.state is not None and bool(watcher.state.runtime.pause_reasons)


def _runs_tool(watcher: Watcher) -> bool:
    return watcher.state is not None and any(call.status == "running" for call in watcher.state.runtime.tools)


PHASES: dict[str, Phase] = {
    "start": lambda w: True,
    "first message": lambda w: shown_characters(w) > 60,
    "first tool": _runs_tool,
    "between": lambda w: has_answers(w) >= 1,
    "second message": lambda w: has_answers(w) >= 1 and shown_characters(w) > 20,
    "parked": _is_asked,
    "tool after approval": lambda w: _was_asked(w) and not _is_asked(w) and _runs_tool(w),
    "last message": lambda w: _was_asked(w) and not _is_asked(w) and shown_characters(w) > 20,
}
"""Conditions that a client sees at the moments around which an owner is killed."""


def judge_of(app: ModuleType) -> Callable[[Story, Watcher, list[JsonObject]], None]:
    return partial(_judge_remote if getattr(app, "IS_REMOTE", False) else _judge, app)


def _judge(app: ModuleType, story: Story, watcher: Watcher, effects: list[JsonObject]) -> None:
    """Check that the text equals the text of an undisturbed run; only effects that a kill interrupted may be
    unknown."""
    text = watcher.messages[-1][1]
    unknown: list[str] = []
    fitting = [said for said in _possible(app.ONCE) if app.text(said) == text]
    if fitting:
        unknown = [name for name, said in fitting[0].items() if said == UNKNOWN]
    else:
        story.violations.append(f"the text is {text[-300:]!r}, none that a run could have")
    story.unknown_count += len(unknown)
    for name in app.ONCE:
        begun = [each["at"] for each in effects if (each["name"], each["what"]) == (name, "begin")]
        ended = [each["at"] for each in effects if (each["name"], each["what"]) == (name, "end")]
        if len(begun) > 1:
            story.violations.append(f"{name} had its effect {len(begun)} times")
        if fitting and name not in unknown and not (begun and ended):
            story.violations.append(f"{name} has returned a result without its effect")
        if name in unknown:
            from_at = begun[0] - SLACK_SECONDS if begun else float("-inf")
            to_at = ended[0] + SLACK_SECONDS if ended else float("inf")
            if not any(from_at <= kill <= to_at for kill in story.kills):
                story.violations.append(f"{name} is unknown, but no kill has cut it")


def _possible(names: tuple[str, ...]) -> list[Mapping[str, str]]:
    """Return the texts that a run may have, in which each effect has its name or is unknown. The text without unknown
    effects comes first."""
    return [dict(zip(names, said, strict=True)) for said in product(*((name, UNKNOWN) for name in names))]


def _judge_remote(app: ModuleType, story: Story, watcher: Watcher, effects: list[JsonObject]) -> None:
    """Check that an interrupted run keeps its texts and never repeats its effects, and that any other run is
    complete."""
    outcome = watcher.state.runtime.outcome if watcher.state is not None else None
    texts = [text for role, text in watcher.messages if role == "assistant" and text]
    if outcome == "complete" and (not texts or texts[-1] != app.text({name: name for name in app.ONCE})):
        story.violations.append(f"the run is complete, and its text is {texts[-1:]!r}")
    for text in texts:
        if not any(whole.startswith(text) for whole in app.TEXTS):
            story.violations.append(f"{text[-200:]!r} is no beginning of what the agent says")
    if outcome == "interrupted":
        story.unknown_count += 1
        if not story.kills:
            story.violations.append("the run was interrupted without a kill")
    for name in app.ONCE:
        begun = [each for each in effects if (each["name"], each["what"]) == (name, "begin")]
        if len(begun) > 1:
            story.violations.append(f"{name} had its effect {len(begun)} times")
