"""Runs rounds of attempts: each round makes new things for the owner, lets the stranger try, and judges the answers.

In half of the rounds the stranger knows all ids of the owner, since ids may leak through addresses; in the other half
the stranger knows none. Beside the requests, the stranger keeps streams open on the owner's chats while the owner uses
them.
"""

import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random
from types import SimpleNamespace
from typing import cast

import anyio
import httpx2
from starlette.routing import BaseRoute

from tests.fuzz.principals.attempts import Attempt, Attempts, is_stream
from tests.fuzz.principals.owned import Owned, Pools
from tests.fuzz.principals.served import CLERK, OWNER, STRANGER, TOKENS, bearer
from tests.support.fleet import Fleet
from tests.support.server import DEADLINE_SECONDS
from threadcast.api.edge import Edge
from threadcast.base.telemetry import Metrics
from threadcast.routes import build_app
from threadcast.settings.doors import Doors
from threadcast.settings.limits import DEFAULT_LIMITS
from threadcast_protocol.framing.stream_ids import CHATS_MAX
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["Round", "app_routes"]

CALLERS = 4
"""Number of attempts at the same time."""

STREAM_SECONDS = 0.3
"""Seconds without a byte after which an answer that may never end is closed."""

ANSWER_SECONDS = 5.0
"""Seconds after which the stranger closes an answer that a run writes."""

LATE_SECONDS = 240.0
"""Maximum seconds by which a round may exceed its requested time to finish its attempts, as on a busy machine."""

LOGGED = ("name of a model", "name of a stream")
"""Content that a log line may have: names that show an operator the cause, but no text of a chat."""

_GUARDED = re.compile(r"/+(?!v1/(?:ping|session)\b)(?:v1|chat|api|metrics)\b", re.IGNORECASE)
"""Paths that need a token. Everybody may ask for the page, probes and pings, and may sign out."""

NEVER_SHOWN = (
    "text of a deleted chat",
    "blob of no chat",
    "unknown path",
    "unknown query",
    "note",
    "forwarded credential",
)
"""Content that its owner does not see again, because it is deleted or was never stored."""


def app_routes() -> Sequence[BaseRoute]:
    """Return the routes of the application as it is served, with the page's and an operator's pages."""
    edge = SimpleNamespace(frame_origins=(), metrics=Metrics(), readiness=None, limits=DEFAULT_LIMITS, doors=Doors())
    return build_app(cast(Edge, edge), cors_origins=[], has_tokens=True, pages=".").routes  # cast: no request is made


class Round:
    """One round. `answers` counts statuses by the kind of request."""

    def __init__(self, fleet: Fleet, seed: int, *, knows_ids: bool) -> None:
        self._fleet = fleet
        self._random = Random(seed)
        self._urls = [web.url for web in fleet.webs]
        self._knows_ids = knows_ids
        self._log_from = len(fleet.log.read_bytes())
        self.owned = Owned(self._urls, self._random)
        self.answers: Counter[str] = Counter()
        self._attempts = self._attempts_min = 0

    async def run(self, seconds: float, attempts_min: int = 0) -> None:
        """Make the owner's data, attack it for `seconds` with at least `attempts_min` requests, and compare the data
        afterwards. Raises AssertionError with the request that leaked."""
        self._attempts_min = attempts_min
        try:
            await self._run(seconds)
        finally:
            await self.owned.close()

    async def _run(self, seconds: float) -> None:
        owned = self.owned
        await owned.make()
        before = await owned.pictures()
        self._forbidden = owned.canaries.contents if self._knows_ids else frozenset(owned.canaries.labels)
        pools = owned.pools() if self._knows_ids else self._made_up(owned.pools())
        await self._check_that_owner_sees(before, owned.pools())
        async with owned.streaming() as is_open, self._client(STRANGER) as stranger:
            own = await self._begin_own(stranger)
            attempts = Attempts(app_routes(), self._random, pools, own)
            async with self._listening(stranger, pools), anyio.create_task_group() as tasks:
                self._ends_at = anyio.current_time() + seconds
                for _ in range(CALLERS):
                    tasks.start_soon(self._attack, stranger, attempts)
                tasks.start_soon(self._ask_without_token, attempts)
                tasks.start_soon(self._use_now_and_then)
            assert is_open(), "the stranger has ended the owner's stream"
        after = await owned.pictures()
        assert list(before) == list(after), "the owner has other chats, blobs or runs than before"
        changed = [path for path in before if before[path] != after[path]]
        assert not changed, f"the owner's answers have changed: {changed}"
        await self._try_without_permission()
        self._check_log()

    # Attempts.

    @property
    def _is_running(self) -> bool:
        late_seconds = anyio.current_time() - self._ends_at
        return late_seconds < 0 or (self._attempts < self._attempts_min and late_seconds < LATE_SECONDS)

    async def _attack(self, client: httpx2.AsyncClient, attempts: Attempts) -> None:
        while self._is_running:
            attempt = attempts.make()
            status = await self._judge(client, attempt)
            self._attempts += 1
            self.answers[f"{attempt.method} {status}"] += 1

    async def _judge(self, client: httpx2.AsyncClient, attempt: Attempt) -> int:
        """Send a request and check everything that comes back: the status, the headers and each byte of the body."""
        status, seen = await self._sent(client, attempt)
        self._check(seen, f"{attempt}")
        assert status < 500 or status in (502, 503), f"{status} for {attempt}: {seen[:500]!r}"
        return status

    async def _sent(self, client: httpx2.AsyncClient, attempt: Attempt) -> tuple[int, bytes]:
        url = self._random.choice(self._urls) + attempt.path
        limit = STREAM_SECONDS if is_stream(attempt) else ANSWER_SECONDS
        status, seen = 0, bytearray()
        with anyio.move_on_after(limit) as waiting:
            request = client.build_request(attempt.method, url, headers=attempt.headers, content=attempt.body)
            answer = await client.send(request, stream=True)
            try:
                status = answer.status_code
                seen += repr(answer.headers.raw).encode()
                async for chunk in answer.aiter_bytes():
                    seen += chunk
                    waiting.deadline = anyio.current_time() + limit
                    if len(seen) > 4_000_000:
                        break
            finally:
                with anyio.CancelScope(shield=True):
                    await answer.aclose()
        return status, bytes(seen)

    def _check(self, seen: bytes, asked: str) -> None:
        leaked = self.owned.canaries.found(seen) & self._forbidden
        labels = self.owned.canaries.labels
        assert not leaked, f"{sorted(labels[each] for each in leaked)} reached another caller, who sent {asked}"

    async def _ask_without_token(self, attempts: Attempts) -> None:
        """Send the same requests without a token, and with wrong ones."""
        wrong = ["Bearer", "Bearer x", f"Basic {TOKENS[OWNER]}", f"Bearer {TOKENS[OWNER][:-1]}", f"Bearer {OWNER}"]
        async with self._client("") as client:
            while self._is_running:
                attempt = attempts.make()
                headers = {**attempt.headers, "Authorization": self._random.choice(wrong)}
                if self._random.random() < 0.3:
                    del headers["Authorization"]
                status, seen = await self._sent(client, attempt._replace(headers=headers))
                assert not self.owned.canaries.found(seen) & self.owned.canaries.contents, attempt
                path = httpx2.URL(self._urls[0] + attempt.path).path  # a client asks for / in place of /v1/..
                is_open = attempt.method == "OPTIONS" or not _GUARDED.match(path)
                assert is_open or not 200 <= status < 300, f"{status} without a token for {attempt}"
                self.answers[f"without token {status}"] += 1
                await anyio.sleep(0.02)

    async def _use_now_and_then(self) -> None:
        """Let the owner type, and begin, use and delete chats while the stranger listens."""
        while self._is_running:
            await self.owned.type()
            await self.owned.live()
            await anyio.sleep(0.5)

    @asynccontextmanager
    async def _listening(self, client: httpx2.AsyncClient, pools: Pools) -> AsyncIterator[None]:
        """Keep the stranger's own lists and named streams open, and check each byte that they receive."""
        async with anyio.create_task_group() as tasks:
            for url in self._urls:
                for path in ("/v1/chats/feed", "/v1/sidebar/subscribe"):
                    tasks.start_soon(self._listen, client, url + path)
                if self._knows_ids:
                    watched = [*self.owned.coming, *pools.chat_ids[: CHATS_MAX - len(self.owned.coming)]]
                    path = "&".join(f"chat_id={chat_id}" for chat_id in watched)
                    tasks.start_soon(self._listen, client, f"{url}/v1/chats/subscribe?{path}&presence=1&blobs=inline")
                    for chat_id in [*self.owned.coming[-5:], *pools.chat_ids[:3]]:
                        path = f"/v1/chats/subscribe?chat_id={chat_id}&presence=1"
                        tasks.start_soon(self._listen, client, url + path)
                for stream_id in pools.values["stream_id"]:
                    path = f"/v1/chats/subscribe?stream_id={stream_id}&presence=1"
                    tasks.start_soon(self._listen, client, url + path)
            yield
            tasks.cancel_scope.cancel()

    async def _listen(self, client: httpx2.AsyncClient, url: str) -> None:
        while True:
            seen = b""
            async with client.stream("GET", url) as answer:
                self.answers[f"listening {answer.status_code}"] += 1
                async for chunk in answer.aiter_raw():
                    seen = seen[-200:] + chunk
                    self._check(seen, f"GET {url}")
            await anyio.sleep(0.2)  # a newer stream of the same name has replaced this stream

    # A token of the owner's principal without any permission.

    async def _try_without_permission(self) -> None:
        """Try to decide, to switch approvals off, and to read traces, in the chats that wait for a decision. A refused
        command adds its refusal to the chat, so this function runs after the comparison."""
        async with self._client(CLERK) as clerk:
            for name in ("paused", "preview"):
                url = f"{self._random.choice(self._urls)}/v1/chats/{self.owned.chats[name]}"
                before = _waiting(await self._json(clerk, url))
                assert before, "nothing waits for a decision, so nothing is tested"
                await self._try_to_approve(clerk, url, before)
                assert _waiting(await self._json(clerk, url)) == before
                assert (await self._json(clerk, f"{url}/approvals"))["tools"] == []

    async def _json(self, client: httpx2.AsyncClient, url: str) -> JsonObject:
        body: JsonObject = (await client.get(url)).json()
        return body

    async def _try_to_approve(self, clerk: httpx2.AsyncClient, url: str, waiting: list[JsonObject]) -> None:
        bodies: list[JsonObject] = [
            *({"type": "tool_decision", "accepted": True, "remember": "tool", **each} for each in waiting),
            {"type": "tool_decisions", "decisions": [{"accepted": True, **each} for each in waiting]},
            *(
                {"type": "set_params", "patch": {key: True}}
                for key in ("autonomous_no_confirm", "auto_approve_editing_tools", "auto_approve_dangerous_commands")
            ),
        ]
        for body in bodies:
            sent = {"client_request_id": f"k-{self._random.getrandbits(64):x}", **body}
            answer = await clerk.post(f"{url}/commands", json=sent, headers={"Prefer": "wait=5"})
            told = answer.json()
            code = told.get("result", told).get("code")
            assert code == "forbidden", f"a token without permissions sent {body} and got {told}"
            self.answers["without permission refused"] += 1
        for path in ("/runs", "/runs/any/diagnostics"):
            answer = await clerk.get(url + path)
            assert answer.status_code == 403, f"a token without permissions read {path}"

    # Checks.

    async def _check_that_owner_sees(self, pictures: dict[str, bytes], pools: Pools) -> None:
        """Check that the search finds each secret in answers that the owner may read; otherwise the search would find
        no leak."""
        canaries = self.owned.canaries
        found = set[str]().union(*(canaries.found(data) for data in pictures.values()))
        unseen = {canaries.labels[each] for each in canaries.contents - found} - {*NEVER_SHOWN}
        assert not unseen, f"the owner does not see these secrets, so nothing is tested: {sorted(unseen)}"
        async with self._client(OWNER) as owner:
            for attempt in Attempts(app_routes(), self._random, pools, pools.chat_ids).reads():
                status, seen = await self._sent(owner, attempt)
                if status == 200 and canaries.found(seen):
                    self.answers["owner sees"] += 1
        assert self.answers["owner sees"] > 80, self.answers

    def _check_log(self) -> None:
        """Check that the log of all processes has neither texts nor tokens."""
        log = self._fleet.log.read_bytes()[self._log_from :]
        labels = self.owned.canaries.labels
        told = {labels[each] for each in self.owned.canaries.found(log) & self.owned.canaries.contents} - {*LOGGED}
        assert not told, f"log lines have {sorted(told)}"
        whole = [name for name, token in TOKENS.items() if token.encode() in log or token[:-1].encode() in log]
        assert not whole, f"log lines have the tokens of {whole}"
        assert b"Traceback" not in log, re.findall(rb".*Traceback.*", log)[:3]

    # Callers.

    @asynccontextmanager
    async def _client(self, name: str) -> AsyncIterator[httpx2.AsyncClient]:
        limits = httpx2.Limits(max_connections=64)
        headers = bearer(name) if name else {}
        async with httpx2.AsyncClient(headers=headers, timeout=DEADLINE_SECONDS, limits=limits) as client:
            yield client

    async def _begin_own(self, client: httpx2.AsyncClient) -> list[str]:
        """Begin chats that the stranger owns, so that some attempts succeed."""
        own = [f"own-{self._random.getrandbits(64):x}" for _ in range(3)]
        for chat_id in own:
            body = {"type": "user_message", "client_request_id": "first", "content": "mine"}
            answer = await client.post(f"{self._urls[0]}/v1/chats/{chat_id}/commands", json=body)
            assert answer.status_code == 202, answer.text
        return own

    def _made_up(self, pools: Pools) -> Pools:
        """Return values of the same form as those of `pools`."""
        made = {name: [f"x{self._random.getrandbits(64):x}" for _ in values] for name, values in pools.values.items()}
        made["hash"] = [f"{self._random.getrandbits(256):064x}" for _ in pools.values["hash"]]
        return Pools([f"x{self._random.getrandbits(64):x}" for _ in pools.chat_ids], made)


def _waiting(chat: JsonObject) -> list[JsonObject]:
    """Return the calls and previews that wait for a decision, each with the fields by which a decision names it."""
    previews = [each for each in chat.get("payloads", []) if each.get("approval") == "pending"]
    waiting = [*chat["runtime"].get("pause_reasons", []), *previews]
    names = ("tool_call_id", "payload_id", "input_hash")
    return [{name: each[name] for name in names if name in each} for each in waiting]
