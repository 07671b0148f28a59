"""Simulates editors that watch a chat: they carry client tools out, claim calls and die, answer twice, or stay silent.

Two editors watch through the chat's driver, which shows them every state. An editor's reaction to a call is random. A
call that still waits after a while is offered again, so that a running editor takes over from a dead one. `calls.py`
reads in the log which editor was right.
"""

import asyncio
import math
import random
from collections import Counter
from collections.abc import Callable

from tests.torture.evidence import Asked
from tests.torture.plan import claim, ide_result
from tests.torture.poster import Poster
from threadcast_protocol.fold.state import ChatState
from threadcast_protocol.wire.events import IdeCall

__all__ = ["Editors"]

NAMES = ("left", "right")

AGAIN_SECONDS = 5.0
"""Seconds after which a waiting call is offered again: its editor has died, or its answer was late."""

WAYS = {"answers": 30, "claims and answers": 25, "claims and dies": 15, "both claim": 10, "both answer": 10, "none": 10}


class Editors:
    """`ask` receives each command before it is sent, so that the driver keeps the command until the stream shows it."""

    def __init__(
        self,
        chat_id: str,
        seed: str,
        poster: Poster,
        keep: Callable[[Asked], None],
        new_id: Callable[[str], str],
        counts: Counter[str],
    ) -> None:
        self._chat_id = chat_id
        self._random = random.Random(seed)
        self._poster = poster
        self._keep = keep
        self._new_id = new_id
        self._counts = counts
        self._busy_until: dict[str, float] = {}

    async def look(self, state: ChatState) -> None:
        """Let the editors react to every call that no editor is busy with."""
        now = asyncio.get_running_loop().time()
        busy_until = self._busy_until
        waiting = [call for call in state.runtime.ide_calls if busy_until.get(call.tool_call_id, -math.inf) <= now]
        async with asyncio.TaskGroup() as tasks:
            for call in waiting:
                self._busy_until[call.tool_call_id] = now + AGAIN_SECONDS
                tasks.create_task(self._carry_out(call))

    async def _carry_out(self, call: IdeCall) -> None:
        (way,) = self._random.choices(list(WAYS), list(WAYS.values()))
        self._counts[f"editors: {way}"] += 1
        one, other = self._random.sample(NAMES, 2)
        match way:
            case "answers":
                await self._answer(call)
            case "claims and answers":
                await self._claim(call, one)
                await self._answer(call)
            case "claims and dies":
                await self._claim(call, one)
            case "both claim":
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._claim(call, one))
                    tasks.create_task(self._claim(call, other))
                await self._answer(call)
            case "both answer":
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._answer(call))
                    tasks.create_task(self._answer(call))
            case _:
                return

    async def _claim(self, call: IdeCall, name: str) -> None:
        await self._post(claim(self._chat_id, self._new_id("c"), call.tool_call_id, name))

    async def _answer(self, call: IdeCall) -> None:
        has_failed = self._random.random() < 0.1
        await self._post(ide_result(self._chat_id, self._new_id("i"), call.tool_call_id, has_failed=has_failed))

    async def _post(self, asked: Asked) -> None:
        self._keep(asked)
        await self._poster.post(asked)
