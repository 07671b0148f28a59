"""`threadcast approve`: shows the questions that wait for this caller in a chat, and sends the answers.

In another caller's chat, the tools that ask these questions have `approver = "another"` (PROTOCOL §11). The chat itself
stays hidden from the approver: the command reads only the questions and writes only their answers. In the caller's own
chat, the questions of agents and tools are asked, too; their answers are texts, options or JSON. Exit codes: 0 when
every question was answered or no question is open; 1 when the server refused a request or does not answer, or when the
input ended before an answer.
"""

import asyncio
import sys

import msgspec

from threadcast.console import refuse
from threadcast.console.answers import REJECT, answer_of, lines_of
from threadcast.console.pen import clean
from threadcast_client import Client, new_request_id
from threadcast_client.errors import BadRequest, ThreadcastError
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.commands import ToolDecision
from threadcast_protocol.wire.events import PauseReason
from threadcast_protocol.wire.http import Failure, QuestionAnswer, Questions, Receipt
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["approve"]

_ADVICE = {
    "unauthorized": "the server does not accept this token; set THREADCAST_TOKEN to the token of the approver",
    "not_found": "no such chat, or this token does not approve for its owner (setting auth.tokens.approves_for)",
}
"""Maps error codes to sentences that replace the server's messages, because they say what to do in a terminal."""

_ANSWERS = {"y": True, "yes": True, "n": False, "no": False}


def approve(url: str, token: str | None, chat_id: str) -> int:
    """Ask about each open question of the chat, one after the other. Returns the exit code."""
    try:
        return asyncio.run(_approve(url, token, chat_id))
    except (ThreadcastError, _Refused) as wrong:
        return refuse(str(wrong))


async def _approve(url: str, token: str | None, chat_id: str) -> int:
    path = f"/v1/chats/{chat_id}/questions"
    async with Client(url, token) as client:
        asked = msgspec.json.decode(await _body(client, "GET", path), type=Questions).questions
        if not asked:
            print("no question waits for you in this chat")
        for reason in asked:
            if reason.type == "question":
                if not await _answer(client, chat_id, reason):
                    return refuse("the input ended; the question stays open")
                continue
            accepted = _decision(reason)
            if accepted is None:
                return refuse("the input ended; the question stays open")
            wanted = QuestionAnswer(reason.tool_call_id, accepted, reason.input_hash)
            receipt = msgspec.json.decode(await _body(client, "POST", path, encode(wanted)), type=Receipt)
            if receipt.status == "refused":
                raise _Refused(str((receipt.result or {}).get("error", "the answer was refused")))
            print("allowed" if accepted else "denied")
    return 0


async def _answer(client: Client, chat_id: str, reason: PauseReason) -> bool:
    """Ask the question of an agent or a tool until the server accepts the answer. Returns False at the end of the
    input."""
    shown = msgspec.to_builtins(reason)
    print(clean("\n".join(lines_of(shown))))
    async with client.chat(chat_id, wait=False) as chat:
        while True:
            print("your answer: ", end="", flush=True)
            line = sys.stdin.readline()
            if not line:
                return False
            try:
                accepted = line.strip() != REJECT
                edited: JsonObject | None = {"answer": answer_of(shown, line.strip())} if accepted else None
                await chat.send(
                    ToolDecision(
                        client_request_id=new_request_id(),
                        tool_call_id=reason.tool_call_id,
                        accepted=accepted,
                        edited_input=edited,
                        input_hash=reason.input_hash or None,
                    )
                )
            except (ValueError, BadRequest) as wrong:
                print(clean(str(wrong)))
                continue
            print("answered" if accepted else "rejected")
            return True


def _decision(reason: PauseReason) -> bool | None:
    """Print the question and read the answer; None at the end of the input."""
    print(clean(f"{reason.tool_name} {encode(reason.input).decode()}"))
    while True:
        print("allow this call? y or n: ", end="", flush=True)
        line = sys.stdin.readline()
        if not line:
            return None
        if (accepted := _ANSWERS.get(line.strip().lower())) is not None:
            return accepted


async def _body(client: Client, method: str, path: str, body: bytes | None = None) -> bytes:
    answer = await client.request(method, path, body)
    if answer.is_success:
        return answer.content
    try:
        failure = msgspec.json.decode(answer.content, type=Failure)
        sentence = _ADVICE.get(failure.code, failure.detail)
    except (msgspec.DecodeError, UnicodeDecodeError):
        sentence = f"the server answers {answer.status_code}"
    raise _Refused(sentence)


class _Refused(Exception):
    """The server has refused a request; the text says why."""
