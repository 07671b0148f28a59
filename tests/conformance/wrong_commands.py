"""Mutations of commands: of what is posted, and of the answers to it."""

import json
from collections.abc import Callable

from tests.conformance.breaking import Json, answers
from tests.conformance.proxy import Answer, Mutation, Request

__all__ = ["COMMANDS"]

ID = r"/v1/chats/[\w-]+"


def _refusals_accepted(request: Request, answer: Answer) -> None:
    if answer.status == 400:
        answer.status, answer.body = 202, b'{"status":"accepted"}'


def _duplicates_accepted(request: Request, answer: Answer) -> None:
    if answer.body == b'{"status":"duplicate"}':
        answer.status, answer.body = 202, b'{"status":"accepted"}'


def _drops_images(request: Request) -> None:
    if b'"update_message"' in request.body:
        request.body = json.dumps({"attachments": [], **json.loads(request.body)}).encode()


def _impatient(request: Request) -> None:
    request.headers.pop("prefer", None)


def _interrupting(change: Callable[[Json], Json]) -> Callable[[Request], None]:
    """Changes the commands that interrupt."""

    def changed(request: Request) -> None:
        if b'"interrupt"' in request.body:
            request.body = json.dumps(change(json.loads(request.body))).encode()

    return changed


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
        "an edit takes a message's images away", ("edit-keeps-attachments",), request=_drops_images
    ),
    "never-waits": Mutation("Prefer: wait is ignored", ("prefer-wait",), request=_impatient),
    "interrupts-wait": Mutation("interrupt is ignored", ("interrupt", "interrupt-queued"), _interrupting(_waits)),
    "interrupts-steer": Mutation(
        "a message that interrupts lets the model call end", ("interrupt", "interrupt-queued"), _interrupting(_steers)
    ),
    "interrupts-only-abort": Mutation(
        "a message that interrupts ends the run and is not said", ("interrupt",), _interrupting(_only_aborts)
    ),
}
