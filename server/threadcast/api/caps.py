"""The endpoints that describe the server: capabilities, models, tools, profiles, health and metrics (PROTOCOL §13,
SET-3).

The answers have the form that foreign clients expect when they start, plus fields of this server's own. `/livez`
reports that the process runs. `/readyz` reports whether the process can take commands now, and if not, the reason.
"""

from msgspec.structs import asdict
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from threadcast.api.edge import caller_of, edge_of
from threadcast.api.errors import answer
from threadcast.api.limits import limits_of
from threadcast.api.operation import Answer, Operation, Parameter
from threadcast.api.params import in_order, profile_of
from threadcast.api.session import wants_tokens
from threadcast.base.telemetry import METRICS_CONTENT_TYPE
from threadcast.chat.scopes import TOP, Scope, is_declared, nearest, path_of, read_scope
from threadcast.profiles.profile import DEFAULT_PROFILE, Profile, is_for
from threadcast_protocol.wire.commands import Command
from threadcast_protocol.wire.errors import CODES, BadRequest, Forbidden, NotFound
from threadcast_protocol.wire.events import Event
from threadcast_protocol.wire.server_info import (
    Capabilities,
    ChatMode,
    ChatModes,
    ChatStarter,
    Health,
    ModelCapabilities,
    ModeUi,
    PayloadTypeInfo,
    ProviderInfo,
    Providers,
    ThreadDefaults,
    ToolInfo,
)

__all__ = ["caps", "chat_modes", "livez", "metrics", "ping", "providers", "readyz", "tools"]


@Operation(
    "GET",
    "/v1/ping",
    "ping",
    "Check that the server answers.",
    tag="server",
    answers={200: Answer("`pong`.", str, "text/plain")},
    is_open=True,
)
async def ping(_: Request) -> Response:
    """`GET /v1/ping`."""
    return PlainTextResponse("pong")


@Operation(
    "GET",
    "/livez",
    "liveness",
    "Check that the process runs.",
    tag="server",
    answers={200: Answer("The process runs.", Health)},
    is_open=True,
)
async def livez(_: Request) -> Response:
    """`GET /livez`: answers as long as the process and its event loop run."""
    return answer(200, Health("ok"))


@Operation(
    "GET",
    "/readyz",
    "readiness",
    "Check that the store answers and accepts writes.",
    tag="server",
    answers={
        200: Answer("The process can take commands.", Health),
        503: Answer("The process cannot take commands; the body names the reason.", Health),
    },
    is_open=True,
)
async def readyz(request: Request) -> Response:
    """`GET /readyz`: answers 200 if the process can take commands, else 503 with the reason. With Sentinel, `primary`
    is the server that takes commands. With a Cluster, all of `nodes` take commands except the nodes in `away`; the
    chats of these nodes wait."""
    return answer(*await edge_of(request).readiness.look())


@Operation(
    "GET",
    "/metrics",
    "metrics",
    "Read counters and gauges for Prometheus.",
    tag="server",
    answers={200: Answer("The metrics.", str, "text/plain")},
    errors={
        403: "`forbidden`: with tokens, the caller needs the permission `metrics`.",
        404: "`not_found`: several processes share this port; `server.metrics_port` has the metrics.",
    },
)
async def metrics(request: Request) -> Response:
    """`GET /metrics`: returns the metrics in the Prometheus text format. If the server has tokens, the caller needs the
    permission `metrics`, because the metrics show the work of all callers. On a port that several processes share, the
    endpoint answers 404, because each request could reach a process with other counters."""
    edge, principal = caller_of(request)
    if wants_tokens(request) and "metrics" not in principal.permissions:
        raise Forbidden(
            "this token may not read the metrics; the operator gives it the permission `metrics`, or sets "
            "server.metrics_port"
        )
    if edge.shares_port:
        raise NotFound(
            "several processes share this port; set server.metrics_port, the port of the first one's metrics"
        )
    return Response(edge.metrics.render(), headers={"content-type": METRICS_CONTENT_TYPE})


@Operation(
    "GET",
    "/v1/caps",
    "readCaps",
    "Read the server's models, profiles, types and limits.",
    tag="server",
    answers={200: Answer("The server's capabilities.", Capabilities)},
)
async def caps(request: Request) -> Response:
    """`GET /v1/caps`: returns the models, the profiles with their scopes and payload types, all commands, events and
    codes, the origins that may frame the page, and the limits."""
    edge, _ = caller_of(request)
    await edge.providers.listed()
    models = {
        model_id: ModelCapabilities(
            id=model_id,
            name=info.name,
            n_ctx=info.context_tokens,
            tokenizer="",
            supports_tools=info.supports_tools,
            supports_multimodality=info.supports_images,
            supports_clicks=False,
            supports_agent=True,
            default_temperature=None,
            samplers=in_order(edge.providers.samplers(model_id)),
            enabled=True,
            type="chat",
        )
        for model_id, info in edge.providers.model_infos().items()
    }
    return answer(
        200,
        Capabilities(
            chat_default_model=edge.profiles.default_model,
            chat_models=models,
            completion_models={},
            samplers={name: in_order(edge.providers.samplers(f"{name}/")) for name in edge.providers.names},
            metadata=None,
            profiles=[profile.name for profile in edge.profiles.all],
            mode_aliases={alias: profile.name for profile in edge.profiles.all for alias in profile.aliases},
            scopes={profile.name: [list(scope) for scope in profile.scopes] for profile in edge.profiles.all},
            payload_types={profile.name: _payload_types(profile) for profile in edge.profiles.all},
            commands=_tags(Command),
            events=["snapshot", *_tags(Event)],
            codes=sorted(CODES),
            frame_origins=edge.frame_origins,
            scripted_providers=edge.providers.scripted,
            limits=limits_of(edge),
        ),
    )


@Operation(
    "GET",
    "/v1/providers",
    "listProviders",
    "List the providers of models.",
    tag="server",
    answers={200: Answer("The providers.", Providers)},
)
async def providers(request: Request) -> Response:
    """`GET /v1/providers`: lists the configured providers. `has_credentials` is true for every configured provider,
    even if the provider needs no key. Only the provider knows whether a key is valid; `threadcast doctor` asks the
    provider."""
    edge, _ = caller_of(request)
    await edge.providers.listed()
    counts = dict.fromkeys(edge.providers.names, 0)
    for model_id in edge.providers.model_infos():
        counts[model_id.partition("/")[0]] += 1
    listed = [
        ProviderInfo(
            name=name,
            display_name=name,
            enabled=True,
            readonly=True,
            has_credentials=True,
            status="active",
            model_count=count,
        )
        for name, count in counts.items()
    ]
    return answer(200, Providers(listed))


@Operation(
    "GET",
    "/v1/chat-modes",
    "listChatModes",
    "The profiles that `mode` may name.",
    tag="server",
    parameters=[Parameter("scope", str, "A scope, such as `reports/articles`; by default none.")],
    answers={200: Answer("The profiles, as they are in the scope.", ChatModes)},
    errors={400: "`bad_request`: `scope` is no scope."},
)
async def chat_modes(request: Request) -> Response:
    """`GET /v1/chat-modes?scope`: lists the profiles as they are in a scope; without `scope`, as they are outside of
    all scopes. A profile that does not declare the scope is shown as it is in the nearest enclosing scope that it
    declares, because the chats of the profile would be in that scope.

    Raises:
        BadRequest: `scope` is malformed.
    """
    edge, principal = caller_of(request)
    wanted = request.query_params.get("scope")
    scope = read_scope(wanted) if wanted else TOP
    if scope is None:
        raise BadRequest("scope: write one to three names without white space, with / between", path="/scope")
    modes = [
        ChatMode(
            id=profile.name,
            title=profile.title,
            aliases=profile.aliases,
            description=profile.description,
            greeting=here.greeting,
            starters=None if here.starters is None else [ChatStarter(**asdict(each)) for each in here.starters],
            model=profile.model,
            tools_count=len(edge.profiles.catalogue(profile, around, principal.roles)),
            thread_defaults=ThreadDefaults(
                include_project_info=True,
                checkpoints_enabled=True,
                auto_approve_editing_tools=False,
                auto_approve_dangerous_commands=False,
            ),
            ui=ModeUi(order, []),
            allows_autonomous=profile.allows_autonomous,
        )
        for order, profile in enumerate(edge.profiles.all)
        for around in (nearest(scope, profile.scopes),)
        for here in (profile.at(around),)
    ]
    return answer(200, ChatModes(modes, []))


@Operation(
    "GET",
    "/v1/tools",
    "listTools",
    "List the tools that models may be offered in chats of this caller.",
    tag="server",
    parameters=[
        Parameter("mode", str, "A profile; with `scope` alone, the default profile."),
        Parameter("scope", str, "A scope of the profile, such as `reports/articles`."),
    ],
    answers={200: Answer("The tools.", list[ToolInfo])},
    errors={400: "`bad_request`: no such profile, or no such scope in it."},
)
async def tools(request: Request) -> Response:
    """`GET /v1/tools`: lists the tools that models may be offered in chats of this caller (TOOL-12). With `mode` or
    `scope`, the list has the tools of a chat with this profile in this scope; without both, it has the tools of all
    chats together.

    Raises:
        BadRequest: there is no such profile, or the profile has no such scope.
    """
    edge, principal = caller_of(request)
    mode, scope_text = request.query_params.get("mode"), request.query_params.get("scope")
    await edge.mcp.settled()
    if mode is None and scope_text is None:
        known = edge.profiles.known_tools()
        commits = {tool.traits.commit_tool for tool in known.values() if tool.policy == "preview"}
        found = [tool for name, tool in known.items() if is_for(tool, principal.roles) and name not in commits]
    else:
        profile = profile_of(edge, mode or DEFAULT_PROFILE, "/mode")
        found = edge.profiles.catalogue(profile, _scope_of(scope_text, profile), principal.roles)
    return answer(
        200,
        [
            ToolInfo(
                name=tool.name,
                description=tool.description,
                input_schema=tool.input_schema,
                source=tool.source,
                policy=tool.policy,
                scopes=[list(scope) for scope in tool.traits.scopes],
            )
            for tool in found
        ],
    )


def _scope_of(scope_text: str | None, profile: Profile) -> Scope:
    scope = read_scope(scope_text) if scope_text else TOP
    if scope is None or not is_declared(scope, profile.scopes):
        known = ", ".join(sorted(map(path_of, profile.scopes))) or "none"
        raise BadRequest(f"scope: no such place in the profile {profile.name!r}; there are {known}", path="/scope")
    return scope


def _payload_types(profile: Profile) -> list[PayloadTypeInfo]:
    """Return the payload types of a profile, each with its scopes; an empty list means all scopes."""
    scopes_of: dict[str, list[list[str]]] = {}
    for scope, table in profile.scopes.items():
        for name in table.payload_types:
            scopes_of.setdefault(name, []).append(list(scope))
    kinds = {name: kind for table in profile.scopes.values() for name, kind in table.payload_types.items()}
    return [
        PayloadTypeInfo(
            name=kind.name,
            description=kind.description,
            schema=kind.schema,
            scopes=[] if kind.name in profile.payload_types else scopes_of[kind.name],
        )
        for kind in {**profile.payload_types, **kinds}.values()
    ]


def _tags(union: object) -> list[str]:
    """Return the tags of a union of structs."""
    return sorted(str(member.__struct_config__.tag) for member in getattr(union, "__args__", ()))
