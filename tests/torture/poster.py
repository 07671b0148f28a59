"""Posts as a distrustful client does: posts a command until the server answers, and posts it again until the command
appears in the stream.

The same bytes are sent through any web process, twice at once, or again after the answer was lost. Now and then another
body is sent under the same id, and the server has to refuse it. Every answer is written down in the command's `Asked`.
`plan.py` chooses the commands, and the drivers read the streams.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence

import msgspec

from tests.torture.evidence import Asked, Mishap
from tests.torture.wire import Broken, Lines

__all__ = ["Poster"]

ANSWER_SECONDS = 6.0
"""Maximum seconds for an answer: an abort waits up to 2 s for its effect, and a stalled store causes a 503 after 4
s."""

PAUSE_FIRST_SECONDS = 0.2
PAUSE_MAX_SECONDS = 2.0
"""Seconds between tries: the pause doubles from the first value to the second and is spread at random, as clients are
told to do."""

AT_ONCE = 60
"""Maximum simultaneous posts to one web process. Further posts would only wait in the process, and time out when it is
busy."""

KEPT = frozenset({"accepted", "applied", "aborted"})


class Poster:
    """All drivers share one poster. `counts` appears in the report."""

    def __init__(self, ports: Sequence[int], seed: str, mishaps: list[Mishap], counts: Counter[str]) -> None:
        self._ports = ports
        self._random = random.Random(seed)
        self._mishaps = mishaps
        self._counts = counts
        self._lines = Lines()
        self._room = {port: asyncio.Semaphore(AT_ONCE) for port in ports}

    async def post(self, asked: Asked) -> None:
        """Post until a web process has given a final answer. A caller that cannot wait for ever sets its own
        deadline."""
        port, pause = self._random.choice(self._ports), PAUSE_FIRST_SECONDS
        while not await self._post_once(asked, port):
            await asyncio.sleep(pause * self._random.uniform(0.5, 1.5))
            pause = min(2 * pause, PAUSE_MAX_SECONDS)
            port = self._random.choice([other for other in self._ports if other != port] or self._ports)

    async def post_with_a_twist(self, asked: Asked) -> None:
        """Post like `post`, and sometimes once more than needed."""
        drawn = self._random.random()
        if drawn < 0.10:
            self._counts["posted twice at once"] += 1
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.post(asked))
                tasks.create_task(self.post(asked))
            return
        await self.post(asked)
        if drawn < 0.20:
            self._counts["posted again"] += 1
            await self.post(asked)
        elif drawn < 0.25 and asked.is_accepted:
            await self._post_other_body(asked)

    async def cancel(self, asked: Asked) -> None:
        """Send DELETE …/queue/<id> once. A missing answer does not show whether the command was accepted."""
        path = f"/v1/chats/{asked.chat_id}/queue/{asked.request_id}"
        try:
            answer = await self._lines.request(self._random.choice(self._ports), "DELETE", path, seconds=ANSWER_SECONDS)
        except Broken:
            return
        self._counts["cancels"] += 1
        if answer.status == 200 and answer.json.get("status") == "cancelled":
            asked.was_cancelled = True

    async def _post_once(self, asked: Asked, port: int) -> bool:
        """Post once; returns whether the answer was final."""
        asked.posts += 1
        self._counts["posts"] += 1
        path = f"/v1/chats/{asked.chat_id}/commands"
        try:
            async with self._room[port]:
                answer = await self._lines.request(port, "POST", path, asked.body, seconds=ANSWER_SECONDS)
        except Broken:
            self._counts["posts without an answer"] += 1
            asked.lost_at = asyncio.get_running_loop().time()
            return False
        said = answer.json
        if answer.status in (503, 429):
            self._counts[f"posts answered {answer.status}"] += 1
            asked.lost_at = asyncio.get_running_loop().time()
            return False
        if answer.status >= 500 or not said:
            words = f"POST of {asked.request_id} was answered {answer.status} {answer.body[:200]!r}"
            self._mishaps.append(Mishap("internal", asked.chat_id, words))
            return False
        asked.answers.append(str(said.get("status") if answer.status < 300 else said.get("code")))
        return True

    async def _post_other_body(self, asked: Asked) -> None:
        body = msgspec.json.decode(asked.body)
        body["content"] = "not what was said before"
        other = Asked(
            chat_id=asked.chat_id, request_id=asked.request_id, type=asked.type, body=msgspec.json.encode(body)
        )
        await self.post(other)
        asked.answers += [answer for answer in other.answers if answer == "idempotency_mismatch"]
        if "idempotency_mismatch" not in other.answers:
            words = f"another body under {asked.request_id} was answered {other.answers}"
            self._mishaps.append(Mishap("mismatch", asked.chat_id, words))
