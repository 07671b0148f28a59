"""A provider that plays a written script: examples and rehearsals without any key, and other people's tests.

    [[scene]]
    when = "(?i)weather in (\\w+)"               # a regular expression, looked for in the user's last words

    [[scene.round]]
    text = "I will look."
    calls = [{ name = "weather", arguments = { city = "<<1>>" } }]

    [[scene.round]]
    text = "It says: <<result.summary>>"

    [[scene]]
    when = "(?i)what have I found"
    prompt = "- (pl_\\S+) \\(chart\\)"            # also in the system prompt, the last such place

The first scene that is found is played, a round for each model call since the user's last words; after the last round
it says that it has nothing more. `<<1>>` is a group of the expression, `<<result>>` the last tool's result,
`<<result.a.0>>` a place in its JSON, `<<user>>` the words themselves. The file is read when the server starts. It knows
no chat and no tool: a call of one that is not offered is answered like any model's.
"""

import asyncio
import re
import tomllib
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

import msgspec

from protocol.errors import ModelFailed, explain
from protocol.messages import JsonObject, Message, Usage, text_of
from server.providers.base import (
    Delta,
    Finished,
    ModelInfo,
    ModelNamed,
    ReasoningDelta,
    Request,
    TextDelta,
    ToolCallDelta,
    UsageReported,
)
from server.providers.demo.text import words_of

__all__ = ["Script", "read_scenes"]

CONTEXT_TOKENS = 128_000
DEFAULT_RATE = 60.0
"""Words a second, when the file does not say."""

ASIDES = frozenset({"guard", "empty"})
"""Kinds of what the server says in the user's place, which is no new question: the scene goes on."""

SCENE_IS_OVER = "My script has nothing more for this."

_PLACE = re.compile(r"<<([A-Za-z0-9_.-]+)>>")


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Call(_Part, frozen=True):
    name: str
    arguments: JsonObject = {}


class Round(_Part, frozen=True):
    """One model call. `reasoning` comes first, then `text`, then `calls`."""

    text: str = ""
    reasoning: str = ""
    calls: list[Call] = []


class Scene(_Part, frozen=True, kw_only=True):
    """`prompt` is looked for in the system prompt, where the context and the payloads stand: its last occurrence, whose
    groups are counted on from those of `when`. Empty: any prompt."""

    when: str
    prompt: str = ""
    round: list[Round]


class _File(_Part, frozen=True):
    """`rate` is words per second, 0 as fast as it goes."""

    scene: list[Scene]
    rate: float = DEFAULT_RATE
    models: list[str] = msgspec.field(default_factory=lambda: ["script"])


def read_scenes(path: str) -> _File:
    """The script in a TOML file.

    Raises:
        ValueError: no such file, or not a script; the sentence names the place.
    """
    try:
        table = tomllib.loads(Path(path).read_text("utf-8"))
        scenes = msgspec.convert(table, _File)
        for number, scene in enumerate(scenes.scene):
            _compile(scene.when, number)
            _compile(scene.prompt, number)
    except OSError as wrong:
        raise ValueError(f"{path}: {wrong.strerror or wrong}") from None
    except msgspec.ValidationError as wrong:
        sentence, place = explain(wrong)
        raise ValueError(f"{path}: {sentence}{f' (at {place})' if place else ''}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as wrong:
        raise ValueError(f"{path}: {wrong}") from None
    return scenes


class Script:
    """A `Provider` whose models all play the one script of `path`. Raises ValueError, as `read_scenes`."""

    def __init__(self, name: str, path: str) -> None:
        self.name = name
        self._file = read_scenes(path)

    def check(self, model: str) -> None:
        """Raises ModelFailed: the script has no such model."""
        if model not in self._file.models:
            known = ", ".join(self._file.models)
            raise ModelFailed("llm_error", f"The script has no model {model!r}; known: {known}.")

    def models(self) -> list[ModelInfo]:
        return [ModelInfo(name=name, context_tokens=CONTEXT_TOKENS, supports_images=True) for name in self._file.models]

    def prefills(self, model: str) -> bool:
        """What is written down can be continued anywhere."""
        return True

    def samplers(self, model: str) -> frozenset[str]:
        """Nothing is drawn by chance here."""
        return frozenset()

    async def aclose(self) -> None:
        """Nothing is held."""

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Play the next round."""
        self.check(request.model)
        yield ModelNamed(f"{self.name}/{request.model}")
        played, places = _next_round(self._file.scene, request.system, request.messages)
        said = 0
        reasoning = "" if request.prefix else _filled(played.reasoning, places)
        text = _filled(played.text, places)
        if request.prefix:  # words that a person has changed since are followed by nothing
            text = text.removeprefix(request.prefix) if text.startswith(request.prefix) else ""
        for said_text, kind in ((reasoning, ReasoningDelta), (text, TextDelta)):
            for word in words_of(said_text):
                await asyncio.sleep(1 / self._file.rate if self._file.rate else 0)
                said += 1
                yield kind(word)
        for index, call in enumerate(played.calls):
            arguments = msgspec.json.encode(_filled_all(call.arguments, places)).decode()
            yield ToolCallDelta(index, f"call_{len(request.messages)}_{index}", call.name, arguments)
        heard = len(request.system.split()) + sum(len(text_of(m.content).split()) for m in request.messages)
        yield UsageReported(Usage(heard, said, heard + said))
        yield Finished("tool_calls" if played.calls else "stop")


def _next_round(scenes: list[Scene], prompt: str, messages: list[Message]) -> tuple[Round, Mapping[str, str]]:
    """What is played after these messages, and what its places are filled with."""
    asked_at = max((at for at, m in enumerate(messages) if m.role == "user" and m.kind not in ASIDES), default=-1)
    words = text_of(messages[asked_at].content) if asked_at >= 0 else ""
    since = messages[asked_at + 1 :]
    rounds_done = sum(message.role == "assistant" for message in since)
    results = [text_of(message.content) for message in since if message.role == "tool"]
    for number, scene in enumerate(scenes):
        found = _compile(scene.when, number).search(words)
        told = [*_compile(scene.prompt, number).finditer(prompt)][-1:]
        if found is None or not told:
            continue
        groups = (*found.groups(), *told[0].groups())
        places = {str(at): group or "" for at, group in enumerate(groups, 1)}
        places |= {"user": words, "result": results[-1] if results else ""}
        over = Round(text=SCENE_IS_OVER)
        return (scene.round[rounds_done] if rounds_done < len(scene.round) else over), places
    known = "\n".join(dict.fromkeys(f"- {scene.when}" for scene in scenes))
    return Round(text=f"My script has nothing for this. It listens for:\n\n{known}"), {}


def _compile(when: str, number: int) -> re.Pattern[str]:
    try:
        return re.compile(when)
    except re.error as wrong:
        raise ValueError(f"scene {number + 1}: {when!r} is no regular expression: {wrong}") from None


def _filled(text: str, places: Mapping[str, str]) -> str:
    def fill(match: re.Match[str]) -> str:
        name, _, path = match[1].partition(".")
        if name not in places:
            return match[0]
        return _at(places[name], path.split(".")) if path else places[name]

    return _PLACE.sub(fill, text)


def _filled_all(value: object, places: Mapping[str, str]) -> object:
    if isinstance(value, str):
        return _filled(value, places)
    if isinstance(value, dict):
        return {key: _filled_all(inner, places) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled_all(inner, places) for inner in value]
    return value


def _at(text: str, path: list[str]) -> str:
    """The value at `path` of a JSON text; nothing when there is none."""
    try:
        value = msgspec.json.decode(text)
        for step in path:
            value = value[int(step)] if isinstance(value, list) else value[step]
    except (msgspec.DecodeError, LookupError, TypeError, ValueError):
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
