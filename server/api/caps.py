"""What this server can do, and how it is: caps, models, tools, profiles, health, metrics (PROTOCOL §13, SET-3).

The shapes are those that foreign clients ask for at start; what is ours is added beside them. Health has two answers:
`/livez` says that the process runs, `/readyz` that it can take commands now and names what is wrong if it cannot.
"""

import anyio
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from protocol.commands import Command
from protocol.errors import CODES, Unavailable
from protocol.events import Event
from server.api.edge import edge_of
from server.api.errors import answer
from server.api.limits import limits_of
from server.telemetry import METRICS_CONTENT_TYPE

__all__ = ["caps", "chat_modes", "livez", "metrics", "ping", "providers", "readyz", "tools"]

READY_SECONDS = 1.0
"""How long the store may take to answer before the server counts as not ready."""


async def ping(_: Request) -> Response:
    """`GET /v1/ping`."""
    return PlainTextResponse("pong")


async def livez(_: Request) -> Response:
    """`GET /livez`: the process runs and its event loop turns."""
    return answer(200, {"status": "ok"})


async def readyz(request: Request) -> Response:
    """`GET /readyz`: 200 when commands can be taken, else 503 and why not."""
    try:
        with anyio.fail_after(READY_SECONDS):
            await edge_of(request).store.ping()
    except Unavailable as trouble:
        return answer(503, {"status": "unavailable", "store": trouble.message})
    except TimeoutError:
        return answer(503, {"status": "unavailable", "store": f"no answer within {READY_SECONDS:g} s"})
    return answer(200, {"status": "ready", "store": "ok"})


async def metrics(request: Request) -> Response:
    """`GET /metrics` in the Prometheus text format."""
    edge = edge_of(request)
    edge.principal(request.scope)
    return Response(edge.metrics.render(), headers={"content-type": METRICS_CONTENT_TYPE})


async def caps(request: Request) -> Response:
    """`GET /v1/caps`: models, profiles and their scopes (none yet), the closed lists of commands, events and
    codes, and limits."""
    edge = edge_of(request)
    edge.principal(request.scope)
    models = {
        model_id: {
            "id": model_id,
            "name": info.name,
            "n_ctx": info.context_tokens,
            "tokenizer": "",
            "supports_tools": info.supports_tools,
            "supports_multimodality": info.supports_images,
            "supports_clicks": False,
            "supports_agent": True,
            "default_temperature": None,
            "enabled": True,
            "type": "chat",
        }
        for model_id, info in edge.providers.model_infos().items()
    }
    return answer(
        200,
        {
            "chat_default_model": edge.profiles.default_model,
            "chat_models": models,
            "completion_models": {},
            "metadata": None,
            "profiles": [profile.name for profile in edge.profiles.all],
            "scopes": {profile.name: [] for profile in edge.profiles.all},
            "commands": _tags(Command),
            "events": ["snapshot", *_tags(Event)],
            "codes": sorted(CODES),
            "limits": limits_of(edge),
        },
    )


async def providers(request: Request) -> Response:
    """`GET /v1/providers`: whoever is configured. `has_credentials` is true for all of them, also for those that need
    no key; whether a key is good only the provider knows (`threadcast doctor` asks it)."""
    edge = edge_of(request)
    edge.principal(request.scope)
    counts = dict.fromkeys(edge.providers.names, 0)
    for model_id in edge.providers.model_infos():
        counts[model_id.partition("/")[0]] += 1
    listed = [
        {
            "name": name,
            "display_name": name,
            "enabled": True,
            "readonly": True,
            "has_credentials": True,
            "status": "active",
            "model_count": count,
        }
        for name, count in counts.items()
    ]
    return answer(200, {"providers": listed})


async def chat_modes(request: Request) -> Response:
    """`GET /v1/chat-modes`: the profiles."""
    edge = edge_of(request)
    edge.principal(request.scope)
    modes = [
        {
            "id": profile.name,
            "title": profile.title,
            "description": profile.description,
            "tools_count": len(edge.tools) + len(edge.mcp.tools()) if profile.tools is None else len(profile.tools),
            "thread_defaults": {
                "include_project_info": True,
                "checkpoints_enabled": True,
                "auto_approve_editing_tools": False,
                "auto_approve_dangerous_commands": False,
            },
            "ui": {"order": order, "tags": []},
        }
        for order, profile in enumerate(edge.profiles.all)
    ]
    return answer(200, {"modes": modes, "errors": []})


async def tools(request: Request) -> Response:
    """`GET /v1/tools`: what models may be offered (TOOL-12)."""
    edge = edge_of(request)
    edge.principal(request.scope)
    await edge.mcp.settled()
    return answer(
        200,
        [
            {
                "name": tool.name,
                "description": tool.description,
                "input_schema": tool.input_schema,
                "source": tool.source,
                "policy": tool.policy,
            }
            for tool in [*edge.tools, *edge.mcp.tools().values()]
        ],
    )


def _tags(union: object) -> list[str]:
    """The wire's names of a union of structs."""
    return sorted(str(member.__struct_config__.tag) for member in getattr(union, "__args__", ()))
