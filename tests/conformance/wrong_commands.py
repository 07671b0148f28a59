"""Mutations of commands and of the answers to them."""

from tests.conformance.breaking import Json, answers, json_requests
from tests.conformance.proxy import Answer, Mutation, Request

__all__ = ["COMMANDS"]

ID = r"/v1/chats/[\w-]+"


def _refusals_accepted(request: Request, answer: Answer) -> None:
    if answer.status == 400:
        answer.status, answer.body = 202, b'{"status":"accepted"}'


def _duplicates_accepted(request: Request, answer: Answer) -> None:
    if answer.body == b'{"status":"duplicate"}':
        answer.status, answer.body = 202, b'{"status":"accepted"}'


def _waits(body: Json) -> Json:
    return {key: value for key, value in body.items() if key != "interrupt"}


def _steers(body: Json) -> Json:
    return {**_waits(body), "priority": True}


def _only_aborts(body: Json) -> Json:
    return {"type": "abort", "client_request_id": body["client_request_id"]}


COMMANDS: dict[str, Mutation] = {
    "refusals-accepted": Mutation(
        "wrong commands are answered 202", ("bad-requests",), answer=answers(f"POST {ID}/commands", _refusals_accepted)
    ),
    "duplicates-accepted": Mutation(
        "the same command is accepted twice",
        ("duplicate",),
        answer=answers(f"POST {ID}/commands", _duplicates_accepted),
    ),
    "edits-drop-images": Mutation(
        "an edit removes a message's images",
        ("edit-keeps-attachments",),
        request=json_requests(b'"update_message"', lambda body: {"attachments": [], **body}),
    ),
    "never-waits": Mutation(
        "Prefer: wait is ignored", ("prefer-wait",), request=lambda request: request.headers.pop("prefer", None)
    ),
    "interrupts-wait": Mutation(
        "interrupt is ignored", ("interrupt", "interrupt-queued"), json_requests(b'"interrupt"', _waits)
    ),
    "interrupts-steer": Mutation(
        "a message that interrupts waits for the end of the model call",
        ("interrupt", "interrupt-queued"),
        json_requests(b'"interrupt"', _steers),
    ),
    "interrupts-only-abort": Mutation(
        "a message that interrupts ends the run and is not added",
        ("interrupt",),
        json_requests(b'"interrupt"', _only_aborts),
    ),
}
