"""`threadcast doctor`: checks the installation. It prints one line for each check and a remedy for each failure.

If a server runs, the command asks the server over HTTP; otherwise it checks the store and the port directly. The
command starts nothing and changes nothing. A check never raises; a failure is a `Finding`.
"""

import asyncio
import platform
import sys
from collections.abc import Mapping

import anyio
import msgspec

from threadcast.console.doctor_programs import program_findings
from threadcast.console.doctor_services import Finding, mcp_findings, model_findings, tool_findings
from threadcast.settings import Settings
from threadcast.settings.sources import BadSettings, Loaded, load_settings
from threadcast.store.ports import Standing
from threadcast_client import Client, Unreachable
from threadcast_protocol.wire.errors import ThreadcastError
from threadcast_protocol.wire.loopback import is_loopback
from threadcast_protocol.wire.server_info import Health

__all__ = ["Finding", "doctor", "examine", "local_url"]

TIMEOUT_SECONDS = 3.0
"""Time limit of each check that needs an answer from another program."""

STUCK_SECONDS = 10.0
"""Seconds that a chat may wait for a worker. A worker takes up a chat within milliseconds; after the death of a worker,
another worker takes up the chat within a lease and a sweep, about 5 s."""


AWAY_ADVICE = (
    "Start it there, or correct REDIS_URL (store.url); no accepted command is lost. See docs/operations.md for more"
)


def doctor(environ: Mapping[str, str], file: str | None, *, url: str | None = None, data_dir: str | None = None) -> int:
    """Print a line for each check. Returns the exit code: 1 if a check failed, else 0.

    `url`: the address of the server to check; without it, the address in the settings.
    """
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
    """Run all checks. Returns the findings of the checks, the most important first."""
    settings = loaded.settings
    findings = [*_configuration(loaded), Finding("ok", "python", f"{platform.python_version()} at {sys.executable}")]
    async with Client(url or local_url(settings), token) as client:
        is_ours, server = await _server(client, settings, is_named=url is not None)
        findings.append(server)
        if is_ours:
            findings.append(await _served_store(client))
        if not is_ours or settings.store.url is not None:  # that server may use another store
            findings.append(await _own_store(settings))
        findings += await _store_health(settings, is_served=is_ours)
        findings.append(await _assistants(settings))
        findings += program_findings(settings)
        servers = await mcp_findings(settings, client if is_ours else None, TIMEOUT_SECONDS)
    if not settings.models.providers:
        findings.append(
            Finding("note", "models", "no model provider is configured, so demo models answer; see docs/models.md")
        )
    findings += await model_findings(settings, TIMEOUT_SECONDS)
    return [*findings, *servers, *await tool_findings(settings, TIMEOUT_SECONDS)]


async def _assistants(settings: Settings) -> Finding:
    """Check that the components of a server can be built from these settings. This check runs the operator's app file,
    as every start of the server does."""
    from threadcast.wiring.components import build_components

    try:
        components = build_components(settings)
    except ValueError as wrong:
        return Finding("fail", "assistants", str(wrong))
    await components.providers.aclose()
    await components.http.aclose()
    profiles = ", ".join(profile.name for profile in components.profiles.all)
    return Finding("ok", "assistants", f"{profiles}; {len(components.tools)} tools, without the tools of MCP servers")


def local_url(settings: Settings) -> str:
    """Return the URL at which a server with these settings is reached from this machine."""
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
    """Check whether a Threadcast server answers.

    `is_named`: the user gave the server's URL, so a missing server is a failure. Otherwise the server's port must be
    free. Returns whether a server answers, and the finding.
    """
    url, port = client.base_url, settings.server.port
    try:
        with anyio.fail_after(TIMEOUT_SECONDS):
            answer = await client.request("GET", "/v1/ping")
        if answer.text.strip() == "pong":
            return True, Finding("ok", "server", f"a threadcast server answers at {url}")
    except (Unreachable, TimeoutError):
        pass
    if is_named:
        text = f"no threadcast server answers at {url}; start it there, or correct --url"
        return False, Finding("fail", "server", text)
    try:
        listener = await asyncio.start_server(lambda reader, writer: None, settings.server.host, port)
    except OSError as wrong:
        text = f"port {port} cannot be used ({wrong.strerror}); stop the program that uses it, or choose another --port"
        return False, Finding("fail", "server", text)
    listener.close()
    await listener.wait_closed()
    return False, Finding("ok", "server", f"no server runs at {url}; port {port} is free")


async def _served_store(client: Client) -> Finding:
    try:
        with anyio.fail_after(TIMEOUT_SECONDS):
            answer = await client.request("GET", "/readyz")
    except (Unreachable, TimeoutError):
        return Finding(
            "fail", "store", f"the server did not answer GET /readyz within {TIMEOUT_SECONDS:g} s; restart it"
        )
    is_ready = answer.status_code == 200
    try:
        health = msgspec.json.decode(answer.content, type=Health)
    except msgspec.DecodeError:
        health = Health("ready" if is_ready else "starting", detail=answer.text.strip())
    if is_ready:
        standing = Standing(health.primary, tuple(health.nodes), tuple(health.away))
        return _standing("the server reports that it is ready", standing)
    advice = f". {AWAY_ADVICE}" if health.status == "unavailable" else ""
    return Finding("fail", "store", f"the server is not ready: {(health.detail or '')[:300]}{advice}")


def _standing(text: str, standing: Standing) -> Finding:
    if standing.away:
        return Finding("fail", "store", f"nodes of the Cluster accept no writes: {'; '.join(standing.away)[:300]}")
    return Finding("ok", "store", f"{text}{standing}")


async def _own_store(settings: Settings) -> Finding:
    if settings.store.url is None:
        from threadcast.store.embedded.server_process import find_binary

        try:
            return Finding("ok", "store", f"a private store in {settings.store.data_dir}, run by {find_binary()}")
        except ThreadcastError as wrong:
            return Finding("fail", "store", wrong.message)
    from threadcast.store.redis.store import RedisStore

    try:
        with anyio.fail_after(TIMEOUT_SECONDS):
            async with RedisStore(settings.store.url.reveal()) as store:
                standing = await store.ping()
    except ThreadcastError as wrong:
        return Finding("fail", "store", f"store.url: {wrong.message}. {AWAY_ADVICE}")
    except TimeoutError:
        return Finding("fail", "store", f"store.url: no answer within {TIMEOUT_SECONDS:g} s. {AWAY_ADVICE}")
    return _standing("the store of store.url answers", standing)


async def _store_health(settings: Settings, *, is_served: bool) -> list[Finding]:
    """Return warnings about a store that answers, and the number of its workers. Another check reports a store that
    does not answer."""
    from threadcast.console.dead_letters import store_url
    from threadcast.store.redis.store import RedisStore

    url = store_url(settings)
    if url is None:
        return []
    try:
        with anyio.fail_after(TIMEOUT_SECONDS):
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
    """Check that workers take up the chats. This check is needed because without workers commands are still accepted
    and no other check fails.

    `count`: the number of workers; None if the store does not report this number. `waits_seconds`: how long the oldest
    chat has waited. `is_served`: a server runs.
    """
    is_stuck = waits_seconds >= STUCK_SECONDS
    waits = f"; a chat has waited {waits_seconds:.0f} s for a worker" if is_stuck else ""
    if not count:
        seen = "this store has no worker" if count == 0 else "this store does not report its workers"
        advice = "; start one: threadcast worker" if count == 0 or is_stuck else ""
        is_wrong = is_stuck or (count == 0 and is_served)
        return Finding("fail" if is_wrong else "note", "workers", seen + waits + advice)
    if is_stuck:
        return Finding("fail", "workers", f"{count} at work{waits}: they are full or stalled; start more workers")
    return Finding("ok", "workers", f"{count} using this store")
