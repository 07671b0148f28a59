"""What this server can do, and how it is: caps, models, tools, profiles, health, metrics (PROTOCOL §13, SET-3).

The shapes are those that foreign clients ask for at start; what is ours is added beside them. Health has two answers:
`/livez` says that the process runs, `/readyz` that it can take commands now and names what is wrong if it cannot.
"""

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from protocol.commands import Command
from protocol.errors import CODES, BadRequest, NotFound
from protocol.events import Event
from protocol.messages import JsonObject
from server.agent.place.profile import DEFAULT_PROFILE, Profile, is_for
from server.agent.place.scopes import TOP, is_declared, nearest, path_of, read_scope
from server.api.edge import edge_of
from server.api.errors import answer
from server.api.limits import limits_of
from server.api.params import in_order
from server.telemetry import METRICS_CONTENT_TYPE
from server.tools.traits import Scope

__all__ = ["caps", "chat_modes", "livez", "metrics", "ping", "providers", "readyz", "tools"]


async def ping(_: Request) -> Response:
    """`GET /v1/ping`."""
    return PlainTextResponse("pong")


async def livez(_: Request) -> Response:
    """`GET /livez`: the process runs and its event loop turns."""
    return answer(200, {"status": "ok"})


async def readyz(request: Request) -> Response:
    """`GET /readyz`: 200 when commands can be taken, else 503 and why not. Behind Sentinel, `primary` takes them; of a
    Cluster, all of `nodes` but those in `away`, whose chats wait while the others go on."""
    return answer(*await edge_of(request).readiness.look())


async def metrics(request: Request) -> Response:
    """`GET /metrics` in the Prometheus text format. Counters that come from another process at each request would say
    nothing, so on a port that several share there are none."""
    edge = edge_of(request)
    edge.principal(request.scope)
    if edge.shares_port:
        raise NotFound(
            "several processes share this port; set server.metrics_port, the port of the first one's metrics"
        )
    return Response(edge.metrics.render(), headers={"content-type": METRICS_CONTENT_TYPE})


async def caps(request: Request) -> Response:
    """`GET /v1/caps`: models, profiles with their scopes and payload types, the closed lists of commands, events and
    codes, who may frame the page, and limits."""
    edge = edge_of(request)
    edge.principal(request.scope)
    await edge.providers.listed()
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
            "samplers": in_order(edge.providers.samplers(model_id)),
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
            "samplers": {name: in_order(edge.providers.samplers(f"{name}/")) for name in edge.providers.names},
            "metadata": None,
            "profiles": [profile.name for profile in edge.profiles.all],
            "mode_aliases": {alias: profile.name for profile in edge.profiles.all for alias in profile.aliases},
            "scopes": {profile.name: [list(scope) for scope in profile.scopes] for profile in edge.profiles.all},
            "payload_types": {profile.name: _payload_types(profile) for profile in edge.profiles.all},
            "commands": _tags(Command),
            "events": ["snapshot", *_tags(Event)],
            "codes": sorted(CODES),
            "frame_origins": edge.frame_origins,
            "scripted_providers": edge.providers.scripted,
            "limits": limits_of(edge),
        },
    )


async def providers(request: Request) -> Response:
    """`GET /v1/providers`: whoever is configured. `has_credentials` is true for all of them, also for those that need
    no key; whether a key is good only the provider knows (`threadcast doctor` asks it)."""
    edge = edge_of(request)
    edge.principal(request.scope)
    await edge.providers.listed()
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
    """`GET /v1/chat-modes?scope`: the profiles, as they are in a place; without `scope`, outside of any place. A
    profile that does not declare the place is shown as in the nearest declared place around it, where its chats would
    be.

    Raises:
        BadRequest: `scope` is malformed.
    """
    edge = edge_of(request)
    roles = edge.principal(request.scope).roles
    wanted = request.query_params.get("scope")
    scope = read_scope(wanted) if wanted else TOP
    if scope is None:
        raise BadRequest("scope: write one to three names without white space, with / between", path="/scope")
    modes = [
        {
            "id": profile.name,
            "title": profile.title,
            "aliases": profile.aliases,
            "description": profile.description,
            "greeting": here.greeting,
            "starters": here.starters,
            "tools_count": len(edge.profiles.catalogue(profile, place, roles)),
            "thread_defaults": {
                "include_project_info": True,
                "checkpoints_enabled": True,
                "auto_approve_editing_tools": False,
                "auto_approve_dangerous_commands": False,
            },
            "ui": {"order": order, "tags": []},
        }
        for order, profile in enumerate(edge.profiles.all)
        for place in (nearest(scope, profile.scopes),)
        for here in (profile.at(place),)
    ]
    return answer(200, {"modes": modes, "errors": []})


async def tools(request: Request) -> Response:
    """`GET /v1/tools`: what models may be offered in chats of this caller (TOOL-12). With `mode` or `scope`, what a
    chat of this profile is offered in this place; without, whatever any chat may be.

    Raises:
        BadRequest: no such profile, or no such scope in it.
    """
    edge = edge_of(request)
    roles = edge.principal(request.scope).roles
    mode, place = request.query_params.get("mode"), request.query_params.get("scope")
    await edge.mcp.settled()
    if mode is None and place is None:
        known = edge.profiles.known_tools()
        commits = {tool.traits.commit_tool for tool in known.values() if tool.policy == "preview"}
        found = [tool for name, tool in known.items() if is_for(tool, roles) and name not in commits]
    else:
        profile = edge.profiles.get(mode or DEFAULT_PROFILE)
        if profile is None:
            names = ", ".join(each.name for each in edge.profiles.all)
            raise BadRequest(f"mode: no such profile; there are {names}", path="/mode")
        found = edge.profiles.catalogue(profile, _scope_of(place, profile), roles)
    return answer(
        200,
        [
            {
                "name": tool.name,
                "description": tool.description,
                "input_schema": tool.input_schema,
                "source": tool.source,
                "policy": tool.policy,
                "scopes": [list(scope) for scope in tool.traits.scopes],
            }
            for tool in found
        ],
    )


def _scope_of(place: str | None, profile: Profile) -> Scope:
    scope = read_scope(place) if place else TOP
    if scope is None or not is_declared(scope, profile.scopes):
        known = ", ".join(sorted(map(path_of, profile.scopes))) or "none"
        raise BadRequest(f"scope: no such place in the profile {profile.name!r}; there are {known}", path="/scope")
    return scope


def _payload_types(profile: Profile) -> list[JsonObject]:
    """All that a profile can show, and the scopes it does so in: none for everywhere."""
    places: dict[str, list[list[str]]] = {}
    for scope, table in profile.scopes.items():
        for name in table.payload_types:
            places.setdefault(name, []).append(list(scope))
    kinds = {name: kind for table in profile.scopes.values() for name, kind in table.payload_types.items()}
    return [
        {
            "name": kind.name,
            "description": kind.description,
            "schema": kind.schema,
            "scopes": [] if kind.name in profile.payload_types else places[kind.name],
        }
        for kind in {**profile.payload_types, **kinds}.values()
    ]


def _tags(union: object) -> list[str]:
    """The wire's names of a union of structs."""
    return sorted(str(member.__struct_config__.tag) for member in getattr(union, "__args__", ()))
