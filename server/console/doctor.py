"""`threadcast doctor`: does everything stand ready here? One line for each check, and what to do where one fails.

It looks from outside: a running server is asked over HTTP, and only when none runs are the store and the port tried
themselves. It starts nothing and changes nothing. A check never raises; whatever goes wrong is its answer.
"""

import asyncio
import platform
import sys
from collections.abc import Mapping

import anyio
import msgspec

from protocol.errors import ThreadcastError
from protocol.loopback import is_loopback
from server.console.doctor_mcp import Verdict, mcp_findings
from server.console.doctor_models import model_finding
from server.console.doctor_tools import tool_findings
from server.settings import Provider, Settings
from server.settings.shown import masked
from server.settings.sources import BadSettings, Loaded, load_settings
from server.store.standing import Standing
from threadcast import Client, Unreachable

__all__ = ["Finding", "doctor", "examine", "local_url"]

PATIENCE_SECONDS = 3.0
"""For each check that asks somebody."""

STUCK_SECONDS = 10.0
"""A chat is taken up within milliseconds, after the death of its worker within a lease and a sweep, some 5 s."""


AWAY_ADVICE = (
    "Start it there, or mend REDIS_URL (store.url); nothing that was accepted is lost. docs/operations.md has the rest"
)


class Finding(msgspec.Struct, frozen=True):
    """`note` is nothing wrong, but worth knowing. As a line it has its URLs masked."""

    verdict: Verdict
    what: str
    text: str

    def __str__(self) -> str:
        return f"{self.verdict:<5} {self.what:<14} {masked(self.text)}"


def doctor(environ: Mapping[str, str], file: str | None, *, url: str | None = None, data_dir: str | None = None) -> int:
    """Print what was found; 1 if anything failed. `url`: of the server that is asked, else where these settings say."""
    try:
        loaded = load_settings(environ, {"store.data_dir": data_dir}, file)
    except BadSettings as wrong:
        print(Finding("fail", "configuration", str(wrong)))
        return 1
    has_failed = False
    for finding in asyncio.run(examine(loaded, environ.get("THREADCAST_TOKEN"), url)):
        print(finding)
        has_failed |= finding.verdict == "fail"
    return int(has_failed)


async def examine(loaded: Loaded, token: str | None = None, url: str | None = None) -> list[Finding]:
    """All checks, in the order in which they matter."""
    settings = loaded.settings
    findings = [*_configuration(loaded), Finding("ok", "python", f"{platform.python_version()} at {sys.executable}")]
    async with Client(url or local_url(settings), token) as client:
        is_ours, server = await _server(client, settings, is_named=url is not None)
        findings.append(server)
        if is_ours:
            findings.append(await _served_store(client))
        if not is_ours or settings.store.url is not None:  # the server that answers may use another store than ours
            findings.append(await _own_store(settings))
        findings += await _store_health(settings, is_served=is_ours)
        findings.append(await _assistants(settings))
        servers = await mcp_findings(settings, client if is_ours else None, PATIENCE_SECONDS)
        services = await tool_findings(settings, PATIENCE_SECONDS)
        tools = [Finding(verdict, what, text) for verdict, what, text in [*servers, *services]]
    providers = settings.models.providers.items()
    if not providers:
        findings.append(Finding("note", "models", "no provider is configured: demo models answer; see docs/models.md"))
    answers: dict[str, Finding] = {}

    async def ask(name: str, provider: Provider) -> None:
        answers[name] = Finding(*await model_finding(name, provider, PATIENCE_SECONDS))

    async with anyio.create_task_group() as tasks:
        for name, provider in providers:
            tasks.start_soon(ask, name, provider)
    return [*findings, *(answers[name] for name, _ in providers), *tools]


async def _assistants(settings: Settings) -> Finding:
    """Could a server be put together from this? The operator's file is run for it, as at every start."""
    from server.assembly import furnish

    try:
        furniture = furnish(settings)
    except ValueError as wrong:
        return Finding("fail", "assistants", str(wrong))
    await furniture.providers.aclose()
    await furniture.http.aclose()
    profiles = ", ".join(profile.name for profile in furniture.profiles.all)
    return Finding("ok", "assistants", f"{profiles}; {len(furniture.tools)} tools, besides those of MCP servers")


def local_url(settings: Settings) -> str:
    """Where a server with these settings is reached from this machine."""
    host = settings.server.host
    if not is_loopback(host) and host in ("", "0.0.0.0", "::"):
        host = "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.server.port}"


def _configuration(loaded: Loaded) -> list[Finding]:
    where = loaded.file or "no threadcast.toml here; defaults and environment only"
    found = [Finding("ok", "configuration", where)]
    found += [Finding("ok", "", f"{value.path} = {value.text}  ({value.origin})") for value in loaded.values()]
    if "models.default" not in loaded.origins:
        found.append(Finding("ok", "", f"models.default = {loaded.settings.models.default or 'none'}  (default)"))
    found += [Finding("note", "", note) for note in loaded.notes]
    return found


async def _server(client: Client, settings: Settings, *, is_named: bool) -> tuple[bool, Finding]:
    """Is it ours that has the port? Of one that was named it is expected to be there."""
    url, port = client.base_url, settings.server.port
    try:
        with anyio.fail_after(PATIENCE_SECONDS):
            answer = await client.request("GET", "/v1/ping")
        if answer.text.strip() == "pong":
            return True, Finding("ok", "server", f"a threadcast server answers at {url}")
    except (Unreachable, TimeoutError):
        pass
    if is_named:
        return False, Finding("fail", "server", f"no threadcast server answers at {url}; start it there, or mend --url")
    try:
        listener = await asyncio.start_server(lambda reader, writer: None, settings.server.host, port)
    except OSError as wrong:
        text = f"port {port} cannot be had ({wrong.strerror}); another program has it? Choose one with --port"
        return False, Finding("fail", "server", text)
    listener.close()
    await listener.wait_closed()
    return False, Finding("ok", "server", f"none runs at {url}; port {port} is free")


class _NotReady(msgspec.Struct):
    """What `/readyz` says with 503, as far as we read it."""

    status: str = ""
    detail: str = ""


async def _served_store(client: Client) -> Finding:
    try:
        with anyio.fail_after(PATIENCE_SECONDS):
            answer = await client.request("GET", "/readyz")
    except (Unreachable, TimeoutError):
        return Finding("fail", "store", f"the server did not say within {PATIENCE_SECONDS:g} s")
    if answer.status_code == 200:
        try:
            standing = msgspec.json.decode(answer.content, type=Standing)
        except msgspec.DecodeError:
            standing = Standing()
        return _standing("the server says that it is ready", standing)
    try:
        said = msgspec.json.decode(answer.content, type=_NotReady)
    except msgspec.DecodeError:
        said = _NotReady(detail=answer.text.strip())
    advice = f". {AWAY_ADVICE}" if said.status == "unavailable" else ""
    return Finding("fail", "store", f"the server is not ready: {said.detail[:300]}{advice}")


def _standing(text: str, standing: Standing) -> Finding:
    if standing.away:
        return Finding("fail", "store", f"nodes of the Cluster take no writes: {'; '.join(standing.away)[:300]}")
    return Finding("ok", "store", f"{text}{standing}")


async def _own_store(settings: Settings) -> Finding:
    if settings.store.url is None:
        from server.store.server_process import find_binary

        try:
            return Finding("ok", "store", f"a private one in {settings.store.data_dir}, run by {find_binary()}")
        except ThreadcastError as wrong:
            return Finding("fail", "store", wrong.message)
    from server.store.redis_store import RedisStore

    try:
        with anyio.fail_after(PATIENCE_SECONDS):
            async with RedisStore(settings.store.url.reveal()) as store:
                standing = await store.ping()
    except ThreadcastError as wrong:
        return Finding("fail", "store", f"store.url: {wrong.message}. {AWAY_ADVICE}")
    except TimeoutError:
        return Finding("fail", "store", f"store.url: no answer within {PATIENCE_SECONDS:g} s. {AWAY_ADVICE}")
    return _standing("the one of store.url answers", standing)


async def _store_health(settings: Settings, *, is_served: bool) -> list[Finding]:
    """What an operator should know of a store that answers; whether it does, another check says."""
    from server.console.dead_letters import store_url
    from server.store.redis_store import RedisStore

    url = store_url(settings)
    if url is None:
        return []
    try:
        with anyio.fail_after(PATIENCE_SECONDS):
            async with RedisStore(url) as store:
                advice, given_up = await store.advice(), await store.dead_letters_count()
                workers, waits_seconds = await store.workers_count(), await store.oldest_due_seconds()
    except (ThreadcastError, TimeoutError):
        return []
    found = [Finding("note", "store", warning) for warning in advice]
    found.append(_workers(workers, waits_seconds, is_served=is_served))
    if given_up:
        found.append(Finding("note", "store", f"commands given up: {given_up}; `threadcast dead-letters` shows them"))
    return found


def _workers(count: int | None, waits_seconds: float, *, is_served: bool) -> Finding:
    """`count` None: the store does not tell. What is accepted and never taken up looks well everywhere else."""
    is_stuck = waits_seconds >= STUCK_SECONDS
    waits = f"; a chat has waited {waits_seconds:.0f} s for one" if is_stuck else ""
    if not count:
        seen = "none is seen at this store" if count == 0 else "the store does not tell who is there"
        advice = "; start one: threadcast worker" if count == 0 or is_stuck else ""
        is_wrong = is_stuck or (count == 0 and is_served)
        return Finding("fail" if is_wrong else "note", "workers", seen + waits + advice)
    if is_stuck:
        return Finding("fail", "workers", f"{count} at work{waits}: they are full or stalled; start more of them")
    return Finding("ok", "workers", f"{count} at work at this store")
