"""The checks of `threadcast doctor` for everything outside the server: model providers, MCP servers and HTTP tools.

The checks start no server and send no request that could have an effect. They never raise; a failure is a finding.
"""

import shutil
from collections import defaultdict
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

import anyio
import httpx2
import msgspec

from threadcast.providers.demo.script import read_scenes
from threadcast.providers.extras import missing_extra
from threadcast.providers.lists import list_request
from threadcast.settings import BASE_URLS, OPENAI_API, Mcp, Provider, Settings
from threadcast.settings.shown import masked
from threadcast.store.url import shown_url
from threadcast.tools.programs_user import ProgramsUser
from threadcast.wiring.tools import programs_user_in
from threadcast_client import Client, Unreachable
from threadcast_protocol.wire.server_info import McpResources

__all__ = ["Finding", "Verdict", "mcp_findings", "model_finding", "model_findings", "tool_findings"]

Verdict: TypeAlias = Literal["ok", "note", "fail"]

MCP_SECONDS = 20.0
"""Seconds that a running server may take to report its MCP servers: it waits for slow MCP servers before it answers."""

_resources = msgspec.json.Decoder(McpResources)


class Finding(msgspec.Struct, frozen=True):
    """The result of one check, printed as one line. A `note` is not an error, but the operator should know about it.

    The line shows URLs without their passwords and tokens.
    """

    verdict: Verdict
    what: str
    text: str

    def __str__(self) -> str:
        return f"{self.verdict:<5} {self.what:<14} {masked(self.text)}"


async def model_findings(settings: Settings, timeout_seconds: float) -> list[Finding]:
    """Check all model providers at once. Returns one finding for each provider, in the order of the settings."""
    providers = settings.models.providers.items()
    return await _at_once([model_finding(name, provider, timeout_seconds) for name, provider in providers])


async def model_finding(name: str, provider: Provider, timeout_seconds: float) -> Finding:
    """Check that a provider has everything it needs and accepts the key.

    The check asks the provider for its list of models, which costs nothing. For a script, the check reads the file. For
    Vertex AI the server uses the credentials of the machine, which are not tried before the first model call.
    """
    what = f"model {name}"
    if command := missing_extra(provider.kind, on_vertex=bool(provider.vertex_project)):
        return Finding("fail", what, f"an optional dependency is missing; install it with: {command}")
    if provider.kind == "script":
        try:
            read_scenes(provider.file)
        except ValueError as wrong:
            return Finding("fail", what, str(wrong))
        return Finding("ok", what, f"plays {provider.file}")
    if provider.vertex_project:
        where = f"{provider.vertex_project} in {provider.vertex_location}"
        return Finding("note", what, f"Vertex AI of {where}, with the credentials of this machine; not checked")
    needs_key = provider.base_url in (OPENAI_API, *BASE_URLS.values())
    if provider.api_key is None and (provider.api_key_env or needs_key):
        return Finding("fail", what, f"the key is missing: set {provider.api_key_env or 'api_key_env, or api_key'}")
    key = provider.api_key.reveal() if provider.api_key is not None else None
    listing = list_request(provider.kind, provider.base_url, key, api_version=provider.api_version)
    assert listing is not None  # only a script has no list of models
    url = shown_url(listing.url.partition("?")[0])
    try:
        async with httpx2.AsyncClient(timeout=timeout_seconds) as http:
            status = (await http.get(listing.url, headers=listing.headers)).status_code
    except (httpx2.HTTPError, httpx2.InvalidURL) as wrong:
        return Finding("fail", what, f"{url} does not answer ({type(wrong).__name__}); is base_url right?")
    if status in (401, 403):
        return Finding("fail", what, f"{url} refuses the key ({status}); set another one")
    if status >= 400:
        return Finding("note", what, f"{url} answers {status}: the server is running, but lists no models")
    return Finding("ok", what, f"{shown_url(provider.base_url)} answers")


async def mcp_findings(settings: Settings, served: Client | None, timeout_seconds: float) -> list[Finding]:
    """Check each configured MCP server.

    `served` is a client of the running Threadcast server, or None when no server runs. A running server reports the
    state of the MCP servers whose resources may be attached. For other MCP servers the check only finds out whether
    they could be started or reached.
    """
    errors = await _reported_errors(served) if served is not None and settings.mcp else None
    found: list[Finding] = []
    tokens = bool(settings.auth.tokens)
    for name, server in settings.mcp.items():
        what = f"mcp.{name}"
        if not server.enabled:
            found.append(Finding("note", what, "switched off: enabled = false"))
        elif find_spec("mcp") is None:
            found.append(Finding("fail", what, "the package for MCP is missing: pip install 'threadcast[mcp]'"))
        elif (
            errors is not None and not server.attach_role and server.attachable("resources", has_tokens=tokens) != "off"
        ):
            wrong = errors.get(name)
            found.append(Finding("fail" if wrong else "ok", what, wrong or "answers the running Threadcast server"))
        else:
            found.append(await _mcp_from_here(what, server, settings, timeout_seconds))
    return found


async def _reported_errors(served: Client) -> dict[str, str] | None:
    """Ask the running server for the errors of its MCP servers. Returns error sentences by the names of the MCP
    servers; None if the server does not answer."""
    try:
        with anyio.fail_after(MCP_SECONDS):
            answer = await served.request("GET", "/v1/mcp/resources")
        return {error.server: error.error for error in _resources.decode(answer.content).errors}
    except (Unreachable, TimeoutError, msgspec.MsgspecError):
        return None


async def _mcp_from_here(what: str, server: Mcp, settings: Settings, timeout_seconds: float) -> Finding:
    if not server.command:
        return await _reached(what, server.url, timeout_seconds)
    program = shutil.which(server.command)
    if program is None:
        return Finding("fail", what, f"{server.command}: no such program; install it, or add it to PATH")
    user = None
    with suppress(ValueError):  # another check reports a user that does not exist
        user = programs_user_in(settings)
    denied = "" if user is None else await _denied_to(user, program, server.args)
    return Finding("fail", what, denied) if denied else Finding("ok", what, f"will run {program}")


async def _denied_to(user: ProgramsUser, program: str, args: Sequence[str]) -> str:
    """Return a sentence if `user` may not run the file `program`, or may not read an existing file or directory that
    `args` name; otherwise ""."""
    files = [anyio.Path(each) for each in args]
    tests = [("run", "-x", anyio.Path(program)), *[("read", "-r", file) for file in files if await file.exists()]]
    for verb, flag, file in tests:
        test = await anyio.run_process(
            ["/bin/sh", "-c", f'test {flag} "$1"', "sh", str(await file.absolute())],
            check=False,
            user=user.uid,
            group=user.gid,
            extra_groups=[],
        )
        if test.returncode != 0:
            return (
                f"the user {user.name}, as which Threadcast runs programs, may not {verb} {file}; give that user "
                "access to it and to the directories above it, or set server.programs_user"
            )
    return ""


async def tool_findings(settings: Settings, timeout_seconds: float) -> list[Finding]:
    """Check that each origin of HTTP tools accepts connections. Returns one finding for each origin, in the order of
    the settings.

    No request is sent, because even a GET to an unknown service could have an effect.
    """
    names: defaultdict[str, list[str]] = defaultdict(list)
    for name, tool in settings.tools.items():
        if tool.url and tool.enabled:
            parts = urlsplit(tool.url)
            names[f"{parts.scheme}://{parts.netloc}"].append(name)
    return await _at_once(
        [_reached("http tools", origin, timeout_seconds, prefix=f"{', '.join(names[origin])}: ") for origin in names]
    )


async def _reached(what: str, url: str, timeout_seconds: float, *, prefix: str = "") -> Finding:
    """Open a connection to the host of a URL and close it again. `prefix`: the beginning of the finding's text."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    address = f"{parts.hostname}:{port}"
    try:
        with anyio.fail_after(timeout_seconds):
            stream = await anyio.connect_tcp(parts.hostname or "", port)
        await stream.aclose()
    except (OSError, TimeoutError):
        return Finding("fail", what, f"{prefix}nothing accepts connections at {address}; is the server running?")
    return Finding("ok", what, f"{prefix}{address} accepts connections")


async def _at_once(checks: Sequence[Awaitable[Finding]]) -> list[Finding]:
    """Run checks concurrently and return their findings in the order of `checks`."""
    found: dict[int, Finding] = {}

    async def run(index: int, check: Awaitable[Finding]) -> None:
        found[index] = await check

    async with anyio.create_task_group() as tasks:
        for index, check in enumerate(checks):
            tasks.start_soon(run, index, check)
    return [found[index] for index in range(len(checks))]
