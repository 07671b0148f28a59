"""Answers one request of a client of MCP: tools, resources and the opening of a session (PROTOCOL §14)."""

import secrets
from collections.abc import Awaitable, Callable
from importlib.metadata import version

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from threadcast.api.answers import AnswerRoom
from threadcast.api.edge import Edge
from threadcast.api.errors import answer
from threadcast.api.outcomes import following, outcome_within
from threadcast.api.posting import ACK_WAIT_SECONDS, lay_down
from threadcast.compat.mcp.asking import (
    AskAnswer,
    AskRun,
    AskStream,
    decisions_of,
    state_in,
)
from threadcast.compat.mcp.chats import chat_at, listed, read, searched, uri_of
from threadcast.compat.mcp.messages import (
    HANDSHAKE_REVISIONS,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    REVISION,
    Envelope,
    McpMessage,
    RequestId,
    RpcError,
    new_session,
    reply,
    tool_failure,
)
from threadcast.compat.mcp.tools import TOOLS, Ask, Decide, ListChats, ReadChat, SearchChats, arguments_of
from threadcast.compat.mcp.watching import Streams, UpdatesAnswer
from threadcast.store.load import load_folded
from threadcast_protocol.wire.commands import Decision, ToolDecision, ToolDecisions, UserMessage
from threadcast_protocol.wire.errors import BadRequest, Conflict, NotFound, Refused, ThreadcastError
from threadcast_protocol.wire.ids import check_id
from threadcast_protocol.wire.messages import JsonObject
from threadcast_protocol.wire.principal import Principal

__all__ = ["OPEN_ASKS", "STREAMS", "Call", "decide_all"]

_AGENTS = "agents/"

_INSTRUCTIONS = "Chats of a Threadcast server. `ask` sends a message to a chat; the other tools read chats and decide."

_CAPABILITIES: JsonObject = {"tools": {}, "resources": {"subscribe": True}}

_SERVER: JsonObject = {"name": "threadcast", "title": "Threadcast", "version": version("threadcast")}

_JSON: JsonObject = {"mimeType": "application/json"}

STREAMS = Streams()
"""The streams of this process that notify clients of changes to chats."""

OPEN_ASKS: dict[tuple[str, str, RequestId], AskAnswer] = {}
"""The open calls of `ask` in this process, by caller, session and id of the request. There is one entry for each open
request."""


def decide_all(decisions: list[Decision]) -> ToolDecisions:
    """Return the command that posts the decisions of a client."""
    return ToolDecisions(client_request_id=f"mcp-{secrets.token_hex(12)}", decisions=decisions)


class Call:
    """Answers one request of a client."""

    def __init__(
        self,
        request: Request,
        edge: Edge,
        principal: Principal,
        request_id: RequestId,
        message: McpMessage,
        envelope: Envelope,
    ) -> None:
        self._request = request
        self._edge = edge
        self._principal = principal
        self._id = request_id
        self._method = message.method
        self._params = message.params
        self._envelope = envelope

    async def answered(self) -> Response:
        """Return the answer. Raises RpcError."""
        methods: dict[str, Callable[[], Awaitable[Response]]] = {
            "ping": self._ping,
            "tools/list": self._tools,
            "tools/call": self._call,
            "resources/list": self._resources,
            "resources/templates/list": self._templates,
            "resources/read": self._read,
        }
        if self._envelope.is_alone:
            methods |= {"server/discover": self._discover, "subscriptions/listen": self._listen}
        else:
            methods |= {
                "initialize": self._initialize,
                "resources/subscribe": self._subscribe,
                "resources/unsubscribe": self._unsubscribe,
            }
        method = methods.get(self._method)
        if method is None:
            raise RpcError(METHOD_NOT_FOUND, f"this server has no method {self._method[:100]!r}")
        try:
            return await method()
        except NotFound as wrong:
            raise RpcError(INVALID_PARAMS, wrong.message, {"code": wrong.code}) from None
        except BadRequest as wrong:
            raise RpcError(INVALID_PARAMS, wrong.message, {"code": wrong.code}) from None

    def _reply(self, result: JsonObject, *, lasts: bool = False, session: str = "") -> Response:
        """Return the response with a result. `lasts` marks results that state how long clients may cache them; this
        server always states zero."""
        if self._envelope.is_alone:
            result = {**result, "resultType": "complete", **({"ttlMs": 0, "cacheScope": "private"} if lasts else {})}
        return answer(200, reply(self._id, result), {"Mcp-Session-Id": session} if session else None)

    async def _ping(self) -> Response:
        return self._reply({})

    async def _initialize(self) -> Response:
        asked = self._params.get("protocolVersion")
        revision = asked if asked in HANDSHAKE_REVISIONS else HANDSHAKE_REVISIONS[0]
        told = {"protocolVersion": revision, "serverInfo": _SERVER, "capabilities": _CAPABILITIES}
        session = new_session(str(revision), self._params.get("capabilities"))
        return self._reply({**told, "instructions": _INSTRUCTIONS}, session=session)

    async def _discover(self) -> Response:
        told = {"supportedVersions": [REVISION, *HANDSHAKE_REVISIONS], "capabilities": _CAPABILITIES}
        meta = {"io.modelcontextprotocol/serverInfo": _SERVER}
        return self._reply({**told, "instructions": _INSTRUCTIONS, "_meta": meta}, lasts=True)

    async def _tools(self) -> Response:
        return self._reply({"tools": TOOLS}, lasts=True)

    async def _call(self) -> Response:
        name, given = self._params.get("name"), self._params.get("arguments")
        try:
            match name:
                case "ask":
                    return await self._ask(arguments_of(Ask, given))
                case "list_chats":
                    wanted = arguments_of(ListChats, given)
                    found = await listed(self._edge, self._principal, wanted.query, wanted.cursor)
                    return self._told(found)
                case "read_chat":
                    wish = arguments_of(ReadChat, given)
                    async with self._edge.answers.turn(self._request) as room:
                        return self._told(await read(self._edge, self._principal, wish.chat_id, wish.last), room)
                case "search_chats":
                    words = arguments_of(SearchChats, given).query
                    async with self._edge.answers.turn(self._request) as room:
                        return self._told(await searched(self._edge, self._principal, words), room)
                case "decide":
                    return self._told(await self._decide(arguments_of(Decide, given)))
                case _:
                    raise RpcError(INVALID_PARAMS, f"this server has no tool {str(name)[:100]!r}")
        except ThreadcastError as wrong:
            return self._reply(tool_failure(wrong))

    def _told(self, result: JsonObject, room: AnswerRoom | None = None) -> Response:
        """Return the result of a tool, also as text, for clients that do not know structured results."""
        text = msgspec.json.encode(result).decode()
        if room is not None:
            room.take(2 * len(text))
        return self._reply({"content": [{"type": "text", "text": text}], "structuredContent": result})

    async def _decide(self, asked: Decide) -> JsonObject:
        edge, principal = self._edge, self._principal
        chat_id = check_id(asked.chat_id, "chat_id")
        await edge.own(chat_id, principal)
        state, _ = await load_folded(edge.store, chat_id, with_facts=False)
        reason = next((each for each in state.runtime.pause_reasons if each.tool_call_id == asked.tool_call_id), None)
        if reason is None:
            raise Conflict("no call of this id waits for a decision; read the chat to see what it waits for")
        command = ToolDecision(
            client_request_id=f"mcp-{secrets.token_hex(12)}",
            tool_call_id=asked.tool_call_id,
            accepted=asked.accepted,
            input_hash=reason.input_hash or None,
            note=asked.note,
            edited_input=asked.arguments if asked.accepted else None,
        )
        async with following(edge, chat_id, principal) as log_messages:
            await lay_down(edge, principal, chat_id, command)
            ack = await outcome_within(edge.store, log_messages, command.client_request_id, ACK_WAIT_SECONDS)
        if ack is not None and not ack.accepted:
            raise Conflict(str(ack.result.get("error", "the decision was refused")))
        return {"chat_id": chat_id, "tool_call_id": asked.tool_call_id, "accepted": asked.accepted}

    async def _ask(self, asked: Ask) -> Response:
        edge, principal = self._edge, self._principal
        again = state_in(self._params.get("requestState")) if self._envelope.is_alone else None
        if again is not None:
            chat_id, request_id = check_id(again[0], "requestState"), again[1]
            await edge.own(chat_id, principal)
            state, _ = await load_folded(edge.store, chat_id, with_facts=False)
            if all(node.client_request_id != request_id for node in state.nodes.values()):
                raise NotFound("no such call; ask again")
            return self._answer(chat_id, request_id, decisions_of(state, self._params.get("inputResponses")), None)
        chat_id = check_id(asked.chat_id, "chat_id") if asked.chat_id is not None else f"mcp-{secrets.token_hex(12)}"
        meta = await edge.own_or_new(chat_id, principal)
        params, new_mode = await self._params_of(asked)
        if meta is not None:
            state, _ = await load_folded(edge.store, chat_id, with_facts=False)
            if state.runtime.pause_reasons:
                raise Conflict("the chat waits for a decision; read it, decide, and ask again")
        command = UserMessage(
            client_request_id=f"mcp-{secrets.token_hex(12)}",
            content=asked.text,
            params={"merge_queued": False, **params},
        )
        return self._answer(chat_id, command.client_request_id, [], command, "" if meta is not None else new_mode)

    async def _params_of(self, asked: Ask) -> tuple[JsonObject, str]:
        """Return the parameters of the message, and the profile of a new chat. Raises NotFound."""
        params: JsonObject = {} if asked.model is None else {"model": asked.model}
        if asked.mode is None:
            return params, ""
        profile = self._edge.profiles.get(asked.mode)
        if profile is not None:
            return {**params, "mode": profile.name}, profile.name
        await self._edge.providers.listed()
        if _AGENTS + asked.mode in self._edge.providers.model_infos():
            return {**params, "model": _AGENTS + asked.mode}, ""
        raise NotFound(f"no profile and no agent is called {asked.mode[:100]!r}")

    def _answer(
        self, chat_id: str, request_id: str, decisions: list[Decision], command: UserMessage | None, new_mode: str = ""
    ) -> Response:
        edge, principal, envelope = self._edge, self._principal, self._envelope
        decided = decide_all(decisions) if decisions else None
        run = AskRun(request_id, [decided.client_request_id] if decided is not None else ())
        stream = AskStream(
            chat_id,
            self._id,
            envelope,
            run,
            request_id,
            may_approve="approve" in principal.permissions,
            decided=frozenset(f"{each.tool_call_id}.{each.input_hash}" for each in decisions),
            is_left_open=command is None and not decisions,
        )

        async def post(authorization: str | None) -> None:
            if command is not None:
                await lay_down(edge, principal, chat_id, command, authorization, new_mode=new_mode)
            if decided is not None:
                await lay_down(edge, principal, chat_id, decided, authorization)

        shown = AskAnswer(
            edge,
            principal,
            chat_id,
            stream,
            run,
            post=post,
            request_id=request_id,
            joins=True,
            detaches=not envelope.is_alone,
            more={"X-Threadcast-Chat-Id": chat_id},
        )
        shown.prepare(self._id, chat_id)
        key = (principal.id, envelope.session, self._id)
        if envelope.session:
            OPEN_ASKS[key] = shown
            shown.forget = lambda: OPEN_ASKS.pop(key, None) if OPEN_ASKS.get(key) is shown else None
        return shown

    async def _resources(self) -> Response:
        cursor = self._params.get("cursor")
        found = await listed(self._edge, self._principal, "", cursor if isinstance(cursor, str) else None)
        resources = [
            {"uri": uri_of(chat["chat_id"]), "name": chat["chat_id"], "title": chat["title"]} | _JSON
            for chat in found["chats"]
        ]
        more = {"nextCursor": found["next_cursor"]} if "next_cursor" in found else {}
        return self._reply({"resources": resources, **more}, lasts=True)

    async def _templates(self) -> Response:
        told = {"uriTemplate": "threadcast://chats/{chat_id}", "name": "chat", "title": "A chat of the caller"} | _JSON
        return self._reply({"resourceTemplates": [told]}, lasts=True)

    async def _read(self) -> Response:
        uri = self._params.get("uri")
        async with self._edge.answers.turn(self._request) as room:
            text = msgspec.json.encode(await read(self._edge, self._principal, chat_at(uri))).decode()
            room.take(len(text))
            return self._reply({"contents": [{"uri": uri, "text": text} | _JSON]}, lasts=True)

    async def _listen(self) -> Response:
        wanted = self._params.get("notifications")
        given = wanted.get("resourceSubscriptions") if isinstance(wanted, dict) else None
        uris = [each for each in given if isinstance(each, str)] if isinstance(given, list) else []
        return UpdatesAnswer(self._edge, self._principal, STREAMS, uris=uris, listen_id=self._id)

    async def _subscribe(self) -> Response:
        uri = self._params.get("uri")
        chat_at(uri)
        try:
            stream = await STREAMS.of_session(self._principal, self._envelope.session)
            await stream.subscribe(str(uri))
        except Refused as wrong:
            raise RpcError(INVALID_PARAMS, wrong.message, {"code": wrong.code}) from None
        return self._reply({})

    async def _unsubscribe(self) -> Response:
        stream = await STREAMS.of_session(self._principal, self._envelope.session)
        stream.unsubscribe(str(self._params.get("uri")))
        return self._reply({})
