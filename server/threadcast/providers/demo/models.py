"""A provider without a key: built-in models for the first start, for tests and for load tests.

    demo/echo repeats the message ?rate= demo/essay an essay ?words=200 &rate= &seed= demo/tools calls tools by the
    words, then answers ?rounds=1 &rate= &break_after_calls= demo/reasoning thinks, then answers ?words=30 &rate= &seed=
    demo/slow waits before its first word ?delay=10 &rate=2 &words=20 demo/hang never ends ?after=0 words demo/error
    fails ?code=llm_error &after=words | &at=start

`rate` is words per second (default 30); 0 means without pauses. The same request always gives the same text, so a
broken answer can be continued exactly.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from itertools import islice
from urllib.parse import parse_qsl

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
from threadcast.providers.demo.calls import WantedCall, summary, wanted_calls
from threadcast.providers.demo.scripted import Scripted, usage_of
from threadcast.providers.demo.text import essay, words_of
from threadcast.providers.failures import Cause, model_failed
from threadcast_protocol.wire.errors import ModelFailed
from threadcast_protocol.wire.messages import text_of

__all__ = ["Demo"]

DEFAULT_RATE = 30.0
"""Default words per second: a little faster than people read."""

MAX_WORDS = 100_000
"""Maximum words of an answer: a few hundred kB, which is more than any model writes."""

CONTEXT_TOKENS = 8_192

FRAGMENT_CHARS = 6
"""Characters per fragment of tool arguments: about a token, so that every call comes in several fragments."""

_NUMBERS: dict[str, dict[str, float]] = {
    "echo": {"rate": DEFAULT_RATE},
    "essay": {"words": 200, "rate": DEFAULT_RATE, "seed": 0},
    "tools": {"rounds": 1, "rate": DEFAULT_RATE, "break_after_calls": 0},
    "reasoning": {"words": 30, "rate": DEFAULT_RATE, "seed": 0},
    "slow": {"delay": 10, "rate": 2, "words": 20, "seed": 0},
    "hang": {"after": 0, "rate": DEFAULT_RATE},
    "error": {"after": 0, "rate": DEFAULT_RATE},
}
"""The models, and their numeric options with defaults."""

_MOST: dict[str, float] = {
    "after": MAX_WORDS,
    "break_after_calls": 1_000,
    "delay": 3_600,
    "rate": 1_000_000,
    "rounds": 1_000,
    "seed": 2**32,
    "words": MAX_WORDS,
}
"""The maximum of each numeric option; the minimum is always 0."""

_CAUSES: dict[str, Cause] = {
    "auth_failed": "auth_failed",
    "connection": "connection",
    "context_overflow": "context_overflow",
    "llm_error": "server_error",
    "rate_limited": "rate_limited",
    "stream_error": "broken",
    "timeout": "timeout",
}


class _Script:
    """The parsed name of a model: `essay?words=400&rate=50`."""

    def __init__(self, model: str) -> None:
        self.model, _, query = model.partition("?")
        if self.model not in _NUMBERS:
            names = ", ".join(f"demo/{name}" for name in _NUMBERS)
            raise ModelFailed("llm_error", f"There is no model 'demo/{model}'; known: {names}.")
        self._numbers = dict(_NUMBERS[self.model])
        self.code: str | None = None
        for name, value in parse_qsl(query, keep_blank_values=True):
            if name in self._numbers:
                self._numbers[name] = self._number(name, value)
            elif self.model == "error" and (name, value) == ("at", "start"):
                self._numbers["after"] = 0
            elif self.model == "error" and name == "code" and value in _CAUSES:
                self.code = value
            else:
                raise ModelFailed("llm_error", f"demo/{self.model} has no option {name}={value}.")

    def _number(self, name: str, text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not 0 <= value <= _MOST[name]:  # also false for nan
            raise ModelFailed("llm_error", f"demo/{self.model}: {name} must be a number from 0 to {_MOST[name]:g}.")
        return value

    def number(self, option: str) -> float:
        return self._numbers[option]

    def count(self, option: str) -> int:
        return int(self._numbers[option])


class Demo(Scripted):
    """The demo `Provider`."""

    name = "demo"

    def check(self, model: str) -> None:
        _Script(model)

    def models(self) -> list[ModelInfo]:
        return [
            ModelInfo(name=name, context_tokens=CONTEXT_TOKENS, supports_tools=name == "tools") for name in _NUMBERS
        ]

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Play the script of `request.model`, as described at the top of this module."""
        script = _Script(request.model)
        if script.model == "error" and not script.count("after"):
            raise model_failed(_CAUSES[script.code or "llm_error"], "demo/error")
        yield ModelNamed(f"demo/{script.model}")
        text, calls = _answer(script, request)
        rate = script.number("rate")
        completion_words = 0
        if script.model == "slow" and not request.prefix:
            await asyncio.sleep(script.number("delay"))
        if script.model == "reasoning" and not request.prefix:
            async for word in _paced(words_of("Somebody asked me this. I think first, and answer then."), rate):
                completion_words += 1
                yield ReasoningDelta(word)
        async for word in _paced(words_of(_rest(text, request.prefix)), rate):
            completion_words += 1
            yield TextDelta(word)
        if script.model == "hang":
            await asyncio.Event().wait()  # no deadline, because this model is meant to hang
        if script.model == "error":
            raise model_failed(_CAUSES[script.code or "stream_error"], "demo/error")
        for fragment in _fragments(calls, request, script.count("break_after_calls") if calls else 0):
            await asyncio.sleep(0)
            yield fragment
        yield usage_of(request, completion_words)
        yield Finished("tool_calls" if calls else "stop")


def _answer(script: _Script, request: Request) -> tuple[str, list[WantedCall]]:
    """Return the whole text of the answer, and the calls that follow it."""
    last_user = max((i for i, message in enumerate(request.messages) if message.role == "user"), default=-1)
    asked = text_of(request.messages[last_user].content) if last_user >= 0 else ""
    match script.model:
        case "echo":
            return f"You said: {asked}", []
        case "tools":
            since = request.messages[last_user + 1 :]
            rounds_done = sum(1 for message in since if message.role == "assistant" and message.tool_calls)
            if request.tools and rounds_done < script.count("rounds"):
                calls = wanted_calls(asked, {tool.name for tool in request.tools})
                if calls:
                    return f"I will use {', '.join(call.name for call in calls)}.", calls
            return summary(since), []
        case "hang" | "error":
            after = script.count("after")
            return "".join(islice(words_of(essay(after + 1, seed=asked)), after)), []
        case _:
            return essay(script.count("words"), seed=f"{script.count('seed')} {asked}"), []


def _rest(text: str, prefix: str) -> str:
    """Return the text that follows `prefix` in the answer.

    Raises:
        ModelFailed: llm_error; the answer does not begin with the prefix.
    """
    if not text.startswith(prefix):
        raise ModelFailed("llm_error", "The demo can continue only its own answer to the same request.")
    return text[len(prefix) :]


async def _paced(words: Iterable[str], rate: float) -> AsyncIterator[str]:
    """Yield one word at a time, scheduled from the first word on: a late word does not delay the next."""
    clock = asyncio.get_running_loop().time
    begun_at = clock()
    for number, word in enumerate(words):
        # Yield to the loop even at rate 0: a stream that never waits would starve every other chat.
        await asyncio.sleep(max(0.0, begun_at + number / rate - clock()) if rate else 0)
        yield word


def _fragments(calls: list[WantedCall], request: Request, break_after: int) -> Iterator[ToolCallDelta]:
    """Yield the name of each call, then its arguments in fragments. The stream breaks after `break_after` whole
    calls."""
    for index, call in enumerate(calls):
        # The number of messages makes ids of later rounds differ, and the same request gives the same ids.
        yield ToolCallDelta(index, f"call_{len(request.messages)}_{index}", call.name)
        if break_after and index == break_after:
            yield ToolCallDelta(index, arguments=call.arguments[:1])
            break
        for start in range(0, len(call.arguments), FRAGMENT_CHARS):
            yield ToolCallDelta(index, arguments=call.arguments[start : start + FRAGMENT_CHARS])
    if break_after:
        raise model_failed("broken", "demo/tools broke off as asked")
