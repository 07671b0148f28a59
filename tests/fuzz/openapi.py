"""Tests a real server against the OpenAPI document with schemathesis: every operation alone, and sequences that follow
links.

Some requests fit the document, and some do not. Answers must have a status, a type and a shape that the document lists;
they must never be 5xx, and never succeed without a token. Streams end only when their reader disconnects, so they are
opened, read until their first block, and closed. Where server and document differ, one of the two must be corrected.
Each check that is switched off has a reason beside it.
"""

import contextlib
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any, TypeAlias

import hypothesis
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings, strategies
from hypothesis.errors import FlakyStrategyDefinition
from hypothesis.stateful import Bundle, initialize
from schemathesis import Case, GenerationMode
from schemathesis.checks import CHECKS
from schemathesis.generation.stateful.state_machine import StepInput

from tests.fuzz.served import DEADLINE_SECONDS, HEADERS
from threadcast.api.schema import openapi_document
from threadcast_protocol.wire.messages import JsonObject

Operation: TypeAlias = schemathesis.APIOperation[Any, Any, Any, Any]  # Any: the kinds of schema behind it
Request: TypeAlias = Case[Any]  # Any: as above

__all__ = ["STREAMS", "open_stream", "operations", "stories", "try_operation"]

STREAMS = ("/v1/chats/subscribe", "/v1/chats/feed", "/v1/sidebar/subscribe")

_NOT_ASKED = (
    # `test_contract.py` compares the verdicts on bodies in both directions, with a reason for each exception. These two
    # checks also judge chats and parameters, and the server ignores unknown parameters (PROTOCOL §2).
    "negative_data_rejection",
    "positive_data_acceptance",
    # The check expects that a chat made by one request exists at the next request; here a chat exists once its owner
    # wrote it.
    "ensure_resource_availability",
    "object_level_authorization",  # the check needs two callers, as in tests/integration/test_auth_http.py
)


def _checks() -> Any:  # Any: functions and classes, which schemathesis tells apart
    return CHECKS.get_by_names([name for name in CHECKS.get_all_names() if name not in _NOT_ASKED])


def _checks_of(status: int) -> Any:  # Any: as above
    """502 says that the model's provider failed, for example because it does not have the model; the document lists
    that status."""
    return [check for check in _checks() if status != 502 or check.__name__ != "not_a_server_error"]


@schemathesis.serializer("application/jsonl")
def _lines(context: schemathesis.SerializationContext, value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


def _document() -> JsonObject:
    """Return the server's document with two changes that the published document cannot have: a token is required here,
    while other servers need no token; and a stream's schema describes its text, because schemathesis cannot read
    OpenAPI 3.1 event by event."""
    document = openapi_document()
    document["security"] = [{"bearer": []}]
    for item in document["paths"].values():
        for verb in ("get", "post"):
            content = item.get(verb, {}).get("responses", {}).get("200", {}).get("content", {})
            content.get("text/event-stream", {}).pop("schema", None)
    return document


def _schema(url: str) -> schemathesis.BaseSchema:
    schema = schemathesis.openapi.from_dict(_document())
    schema.config.update(base_url=url)
    schema.config.generation.update(
        modes=[GenerationMode.POSITIVE, GenerationMode.NEGATIVE], with_security_parameters=False
    )
    return schema


def _settings(examples: int) -> settings:
    return settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )


def operations(url: str) -> Iterator[tuple[str, Operation]]:
    """Return every operation by its label, such as `GET /v1/chats`."""
    for found in _schema(url).get_all_operations():
        operation = found.ok()  # type: ignore[union-attr]  # an error in our document is raised here, as it should be
        assert operation is not None
        yield operation.label, operation


def try_operation(operation: Operation, examples: int, seed: int) -> None:
    """Send this number of requests to one operation. Raises the violation that a check found, with a curl command."""

    @hypothesis.seed(seed)
    @_settings(examples)
    @given(case=operation.as_strategy())
    def ask(case: Request) -> None:
        if operation.path in STREAMS:
            open_stream(case)
        else:
            answer = case.call(headers=HEADERS, timeout=DEADLINE_SECONDS)
            case.validate_response(answer, checks=_checks_of(answer.status_code), headers=HEADERS)

    ask()


def open_stream(case: Request) -> None:
    """Return the first bytes of a stream, or its refusal. `requests` has no deadline for a whole answer, so the answer
    is read in pieces."""
    with requests.Session() as session, contextlib.ExitStack() as stack:
        kwargs = case.as_transport_kwargs(headers=HEADERS)
        kwargs.pop("stream", None)
        answer = stack.enter_context(session.request(**kwargs, stream=True, timeout=DEADLINE_SECONDS))
        if answer.status_code != 200:
            case.validate_response(answer, checks=_checks())
            return
        assert answer.headers["content-type"].startswith("text/event-stream"), answer.headers
        began = time.monotonic()
        for block in answer.iter_content(chunk_size=None):
            assert block.startswith((b"retry: ", b"data: ", b": ", b"id: ", b"event: ")), block[:200]
            break
        assert time.monotonic() - began < DEADLINE_SECONDS


def stories(url: str, examples: int, steps: int, seed: int) -> Counter[str]:
    """Run this number of sequences of requests, in which each request follows a link from an earlier answer. Returns
    the operations that were requested, with the status of each answer, such as `readChat 200`."""
    answers: Counter[str] = Counter()
    schema = _schema(url)
    for path in STREAMS:
        schema = schema.exclude(path=path)
    found: list[Exception] = []
    commands, listed = schema["/v1/chats/{chat_id}/commands"]["POST"], schema["/v1/chats"]["GET"]
    kept = Bundle("catch_all")  # schemathesis requires this name: it sorts the values by operation and status

    @hypothesis.seed(seed)
    class Story(schema.as_state_machine()):  # type: ignore[misc]  # made at run time
        @initialize(target=kept, answered=strategies.booleans())
        def say(self, answered: bool) -> object:
            """Call the operations to which no link can lead, because the client chooses a chat's id. Check that a
            deleted chat stays deleted."""
            body: JsonObject = {"type": "user_message", "client_request_id": uuid.uuid4().hex, "content": "hello"}
            headers = {"Prefer": "wait=5"} if answered else {}
            path = {"chat_id": f"story-{uuid.uuid4().hex}"}
            case = commands.Case(path_parameters=path, headers=headers, body=body, media_type="application/json")
            return self.begin(case)

        @initialize(target=kept)
        def look(self) -> object:
            return self.begin(listed.Case(query={"limit": 5}))

        def begin(self, case: Request) -> object:
            step = StepInput.initial(case)
            self.recorder.record_case(case=case)
            self.control.record_step(step, self.recorder)  # as schemathesis's own rules do
            return self._step(input=step)

        def get_call_kwargs(self, case: Request) -> dict[str, object]:
            return {"headers": HEADERS, "timeout": DEADLINE_SECONDS}

        def validate_response(self, response: schemathesis.Response, case: Request, **kwargs: object) -> None:
            answers[f"{case.operation.definition.raw['operationId']} {response.status_code}"] += 1
            try:
                case.validate_response(response, checks=_checks_of(response.status_code), headers=HEADERS)
            except Exception as wrong:  # reported if a repetition of the story does not fail
                found.append(wrong)
                raise

    try:
        Story.run(settings=settings(_settings(examples), stateful_step_count=steps))
    except FlakyStrategyDefinition:  # the server's answers decide which step may follow, so two runs may differ
        if found:
            raise found[0] from None
    return answers
