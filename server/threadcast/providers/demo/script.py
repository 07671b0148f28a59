"""A provider that plays a script from a file: for examples and demonstrations without a key, and for users' tests.

    [[scene]]
    when = "(?i)weather in (\\w+)"               # a regular expression, looked for in the user's last words

    [[scene.round]]
    text = "I will look."
    calls = [{ name = "weather", arguments = { city = "<<1>>" } }]

    [[scene.round]]
    text = "It says: <<result.summary>>"

    [[scene]]
    when = "(?i)what have I found"
    prompt = "- (pl_\\S+) \\(chart\\)" # must also match in the system prompt; the last match counts

The first matching scene is played, one round for each model call since the user's last message; after its last round
the provider answers that the script is over. In a text, `<<1>>` stands for a group of the expression, `<<result>>` for
the last tool's result, `<<result.a.0>>` for a value in the JSON of that result, and `<<user>>` for the user's message.
The file is read when the server starts. A call of a tool that is not offered fails, as it does for any model.
"""

import asyncio
import re
import tomllib
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

import msgspec

from threadcast.providers.base import (
    Delta,
    Finished,
    ModelInfo,
    ModelNamed,
    ReasoningDelta,
    Request,
    TextDelta,
    ToolCallDelta,
)
from threadcast.providers.demo.scripted import Scripted, usage_of
from threadcast.providers.demo.text import words_of
from threadcast_protocol.wire.decoders import decode_any
from threadcast_protocol.wire.errors import ModelFailed, explain
from threadcast_protocol.wire.messages import JsonObject, Message, text_of

__all__ = ["Script", "read_scenes"]

DEFAULT_RATE = 60.0
"""Words per second of a file without a rate."""

ASIDES = frozenset({"guard", "empty"})
"""Kinds of messages that the server adds with the role user; such a message is not a new question, so the scene
continues."""

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
    """A scene. `prompt` is searched in the system prompt, which contains the context and the payloads; the last match
    of `prompt` is used, and its groups are numbered after the groups of `when`. Empty: any prompt."""

    when: str
    prompt: str = ""
    round: list[Round]


class _File(_Part, frozen=True):
    """The whole script. `rate` is words per second; 0 means without pauses."""

    scene: list[Scene]
    rate: float = DEFAULT_RATE
    models: list[str] = msgspec.field(default_factory=lambda: ["script"])


def read_scenes(path: str) -> _File:
    """Read the script from a TOML file.

    Raises: ValueError: the file does not exist or is not a script; the message names the place.
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
        sentence, pointer = explain(wrong)
        raise ValueError(f"{path}: {sentence}{f' (at {pointer})' if pointer else ''}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as wrong:
        raise ValueError(f"{path}: {wrong}") from None
    return scenes


class Script(Scripted):
    """A `Provider` whose models all play the one script of `path`. Raises ValueError for a file that is not a
    script."""

    def __init__(self, name: str, path: str) -> None:
        self.name = name
        self._file = read_scenes(path)

    def check(self, model: str) -> None:
        if model not in self._file.models:
            known = ", ".join(self._file.models)
            raise ModelFailed("llm_error", f"The script has no model {model!r}; known: {known}.")

    def models(self) -> list[ModelInfo]:
        return [ModelInfo(name=name, supports_images=True) for name in self._file.models]

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Play the round of the script that follows the messages of `request`."""
        self.check(request.model)
        yield ModelNamed(f"{self.name}/{request.model}")
        played, values = _next_round(self._file.scene, request.system, request.messages)
        said = 0
        reasoning = "" if request.prefix else _filled(played.reasoning, values)
        text = _filled(played.text, values)
        if request.prefix:  # a prefix that differs from the script, such as an edited answer, has no continuation
            text = text.removeprefix(request.prefix) if text.startswith(request.prefix) else ""
        for said_text, kind in ((reasoning, ReasoningDelta), (text, TextDelta)):
            for word in words_of(said_text):
                await asyncio.sleep(1 / self._file.rate if self._file.rate else 0)
                said += 1
                yield kind(word)
        for index, call in enumerate(played.calls):
            arguments = msgspec.json.encode(_filled_all(call.arguments, values)).decode()
            yield ToolCallDelta(index, f"call_{len(request.messages)}_{index}", call.name, arguments)
        yield usage_of(request, said)
        yield Finished("tool_calls" if played.calls else "stop")


def _next_round(scenes: list[Scene], prompt: str, messages: list[Message]) -> tuple[Round, Mapping[str, str]]:
    """Return the round that follows these messages, and the values of its placeholders."""
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
        values = {str(at): group or "" for at, group in enumerate(groups, 1)}
        values |= {"user": words, "result": results[-1] if results else ""}
        over = Round(text=SCENE_IS_OVER)
        return (scene.round[rounds_done] if rounds_done < len(scene.round) else over), values
    known = "\n".join(dict.fromkeys(f"- {scene.when}" for scene in scenes))
    return Round(text=f"My script has nothing for this. It listens for:\n\n{known}"), {}


def _compile(when: str, number: int) -> re.Pattern[str]:
    try:
        return re.compile(when)
    except re.error as wrong:
        raise ValueError(f"scene {number + 1}: {when!r} is no regular expression: {wrong}") from None


def _filled(text: str, values: Mapping[str, str]) -> str:
    def fill(match: re.Match[str]) -> str:
        name, _, path = match[1].partition(".")
        if name not in values:
            return match[0]
        return _at(values[name], path.split(".")) if path else values[name]

    return _PLACE.sub(fill, text)


def _filled_all(value: object, values: Mapping[str, str]) -> object:
    if isinstance(value, str):
        return _filled(value, values)
    if isinstance(value, dict):
        return {key: _filled_all(inner, values) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled_all(inner, values) for inner in value]
    return value


def _at(text: str, path: list[str]) -> str:
    """Return the value at `path` of a JSON text; "" when the text has no such value."""
    try:
        value = decode_any(text)
        for step in path:
            value = value[int(step)] if isinstance(value, list) else value[step]
    except (msgspec.DecodeError, LookupError, TypeError, ValueError):
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
