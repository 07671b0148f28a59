"""The endpoints for a chat's open questions and permanent approvals. They list the tools whose calls need no further
approval, and revoke such approvals (GATE-6).

`list_questions` returns the open questions of a paused run to callers who may answer them. The answer includes the
arguments that `hide_input` keeps out of the stream, because all readers get the same bytes of the stream.

A decision with `remember` makes an approval permanent (PROTOCOL §11); `chat/decisions.py` records it. To revoke an
approval, the server posts a command of its own to the chat's inbox, so the chat's actor stays the only writer. The
chat's owner may revoke an approval without the permission to approve.
"""

import secrets

import msgspec
from msgspec.structs import asdict, replace
from starlette.requests import Request
from starlette.responses import Response

from threadcast.api.edge import caller_and_chat_of, own_chat_of, read_json
from threadcast.api.errors import answer
from threadcast.api.operation import BAD_ID, NOT_FOUND, UNAVAILABLE, Answer, Operation
from threadcast.api.outcomes import following, outcome_within
from threadcast.api.posting import ACK_WAIT_SECONDS, carry_out, post, post_of
from threadcast.chat.internal_commands import AnswerQuestion, ForgetTool
from threadcast.store.load import load_folded
from threadcast.store.ports import PostOutcome
from threadcast_protocol.wire.bodies import decode_body
from threadcast_protocol.wire.errors import BadRequest, Forbidden, NotFound
from threadcast_protocol.wire.http import Approvals, QuestionAnswer, Questions, Receipt, Status
from threadcast_protocol.wire.ids import NAME_MAX_CHARACTERS
from threadcast_protocol.wire.principal import Principal

__all__ = ["answer_question", "forget_approval", "list_approvals", "list_questions"]

BODY_MAX_BYTES = 4_096
"""Maximum bytes of a body that answers a question: a call id and a hash, of 128 characters each, take less."""

_answers = msgspec.json.Decoder(QuestionAnswer)


@Operation(
    "GET",
    "/v1/chats/{chat_id}/approvals",
    "listApprovals",
    "The tools whose calls need no approval any more.",
    tag="chats",
    answers={200: Answer("The tools.", Approvals)},
    errors=BAD_ID | NOT_FOUND | UNAVAILABLE,
)
async def list_approvals(request: Request) -> Response:
    """`GET /v1/chats/{chat_id}/approvals`: returns `{"tools": [name]}`, in the order of the approvals; `mcp__SERVER__*`
    means all tools of an MCP server."""
    edge, meta = await own_chat_of(request)
    state, _ = await load_folded(edge.store, meta.chat_id, with_facts=True)
    return answer(200, Approvals(list(state.private.allowed_tools)))


@Operation(
    "DELETE",
    "/v1/chats/{chat_id}/approvals/{tool_name}",
    "forgetApproval",
    "Revoke the approval of a tool.",
    tag="chats",
    answers={
        200: Answer("The tool's next call needs an approval.", Status),
        202: Answer("The command is stored, but its effect is not known yet.", Receipt),
    },
    errors=BAD_ID | {404: "No such chat, or no such approval in it."} | UNAVAILABLE,
)
async def forget_approval(request: Request) -> Response:
    """`DELETE /v1/chats/{chat_id}/approvals/{tool_name}`: the tool's next call needs an approval again."""
    edge, principal, chat_id = caller_and_chat_of(request)
    tool_name = request.path_params["tool_name"]
    if len(tool_name) > NAME_MAX_CHARACTERS:
        raise BadRequest(f"a tool's name has at most {NAME_MAX_CHARACTERS} characters", path="/tool_name")
    await edge.own(chat_id, principal)
    command = ForgetTool(client_request_id=f"forget:{secrets.token_hex(8)}", tool_name=tool_name)
    is_over = await carry_out(edge, principal, chat_id, command)
    if is_over is None:
        return answer(202, Receipt("accepted"))
    if not is_over:
        raise NotFound("this chat remembers no approval of that tool")
    return answer(200, Status("deleted"))


@Operation(
    "GET",
    "/v1/chats/{chat_id}/questions",
    "listQuestions",
    "The questions of a paused run, with all arguments.",
    tag="chats",
    answers={200: Answer("The open questions; none if the chat is not paused.", Questions)},
    errors=BAD_ID | {403: "`forbidden`: this token may not approve tool calls."} | NOT_FOUND | UNAVAILABLE,
)
async def list_questions(request: Request) -> Response:
    """`GET /v1/chats/{chat_id}/questions`: returns `{"questions": [PAUSE_REASON]}`, also with the arguments of tools
    with `hide_input`, to a caller who may approve. An approver of another caller's chat gets the questions that only
    such an approver can accept."""
    edge, principal, chat_id = caller_and_chat_of(request)
    # checked first: another caller's chat is not found, even with all permissions
    meta = await edge.decidable(chat_id, principal)
    if "approve" not in principal.permissions:
        raise Forbidden("this token may not approve tool calls; the operator can give it the permission `approve`")
    state, _ = await load_folded(edge.store, meta.chat_id, with_facts=True)
    run = state.private.run
    gates = run.gates if run is not None else {}
    hidden = {call_id: gate.hidden_input for call_id, gate in gates.items() if gate.hidden_input is not None}
    asked = [
        replace(reason, input=hidden.get(reason.tool_call_id, reason.input))
        for reason in state.runtime.pause_reasons
        if meta.owner == principal.id or reason.approver == "another"
    ]
    return answer(200, Questions(asked))


@Operation(
    "POST",
    "/v1/chats/{chat_id}/questions",
    "answerQuestion",
    "Answer a question, also in a chat of another caller whose calls this caller approves.",
    tag="chats",
    body=QuestionAnswer,
    answers={
        200: Answer("The answer has taken effect (`applied`), or `result` says why not (`refused`).", Receipt),
        202: Answer("The answer is stored, but its effect is not known yet.", Receipt),
    },
    errors=BAD_ID | {403: "`forbidden`: this token may not approve tool calls."} | NOT_FOUND | UNAVAILABLE,
)
async def answer_question(request: Request) -> Response:
    """`POST /v1/chats/{chat_id}/questions` `{"tool_call_id","accepted","input_hash"}`: decides about one call."""
    edge, principal, chat_id = caller_and_chat_of(request)
    meta = await edge.decidable(chat_id, principal)
    if "approve" not in principal.permissions:
        raise Forbidden("this token may not approve tool calls; the operator can give it the permission `approve`")
    wanted = decode_body(_answers, await read_json(request, BODY_MAX_BYTES))
    command = AnswerQuestion(client_request_id=f"answer:{secrets.token_hex(8)}", **asdict(wanted))
    async with following(edge, chat_id, Principal(meta.owner)) as log_messages:
        to_store = post_of(chat_id, meta.owner, command, "exempt", sender=principal)
        if await post(edge, command, to_store, principal) is not PostOutcome.ACCEPTED:
            raise NotFound("no such chat")
        ack = await outcome_within(edge.store, log_messages, command.client_request_id, ACK_WAIT_SECONDS)
    if ack is None:
        return answer(202, Receipt("accepted"))
    return answer(200, Receipt("applied" if ack.accepted else "refused", ack.accepted, ack.result))
