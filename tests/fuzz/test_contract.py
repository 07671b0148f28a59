"""The OpenAPI document and the server give the same verdict on bodies: the server accepts what fits and refuses what
does not.

The server is a real one, and requests use HTTP. An answer 400 or 413 refuses the body. Any other answer means that the
body was understood, even if the request failed (404: no such chat; 409: the id was used before; 429: too many wait).
"""

import re
from collections.abc import Iterable, Iterator
from typing import TypeAlias

import httpx2
import hypothesis
import pytest
from hypothesis import HealthCheck, settings

from tests.fuzz.contract import (
    EXAMPLES,
    RAW_EXAMPLES,
    Asked,
    bodies,
    json_operations,
    raw_bodies,
    raw_operations,
    with_verdict,
)
from tests.fuzz.run import SEED
from tests.fuzz.served import DEADLINE_SECONDS, HEADERS, alive, served
from tests.support.server import Process

BEYOND_SCHEMA = {
    "content is empty": "It depends on content and attachments together.",
    "broken base64": "JSON Schema cannot say what base64 is: `contentEncoding` is an annotation.",
    "Invalid image": "What an image is stands in its bytes.",
    "holds no such blob": "It depends on what was uploaded to the chat.",
    "blob of another chat": "It depends on the chat in the path.",
    "could not be fetched": "It depends on the MCP servers that are configured.",
    "no configured provider takes it": "It depends on the providers that are configured.",
    "no such profile": "It depends on the profiles that are configured.",
    "unknown scope": "Unicode's printable characters have no expression in JSON Schema.",
    "bytes": "Bounds in bytes: JSON Schema counts characters.",
    "Invalid base64": "As above, for the blobs of an export.",
    "SHA-256 of data": "JSON Schema has no hashes.",
    "cannot be imported": "It depends on the limits that are configured.",
    "the header counts": "The counts depend on the other lines.",
    "is not a message of the chat": "It depends on the other lines.",
    "is not an earlier message": "It depends on the other lines.",
    "characters in all": "A bound of several strings together.",
    "at most 20 images": "A bound of parts and attachments together.",
    "at most 1000 parts": "A bound of parts and attachments together.",
    "nested too deep": "JSON Schema has no bound of depth.",
    "must be from 0 to": "Counts of a restored message are bounded by what every reader of JSON keeps exactly.",
    "Integer value out of range": "JSON Schema's integers have no size.",
    "two tools are called": "JSON Schema cannot say that a field differs in all items of a list.",
    "not JSON": "Surrogates without a partner are JSON by RFC 8259, and no text.",
}
"""Maps words of refusals to the reason why JSON Schema cannot express the refused rule."""

COMPLETIONS_BEYOND = re.compile(
    r"messages[./]\d+[./](content|tool_call_id)|messages must end|tools[./]\d+[./]|each call needs a result|"
    r"as this server"
)
"""Rules of `chatCompletions` that its schema cannot express: the fields of a message by its role, and how a history
ends."""

AI_SDK_BEYOND = re.compile("no message of the user|the id of a message has|a file must be a data URL")
"""Rules of the AI SDK's door that its schema cannot express: there must be a message of the user, ids are bounded in
bytes, and files are data URLs."""

AG_UI_BEYOND = re.compile(r"[(]/messages|a list of parts|[(]/tools")
"""Rules of the door of AG-UI that its schema cannot express: the fields of a message by its role, and the total size of
the tools."""

RESPONSES_BEYOND = re.compile(r"\((input|items|text|tools|tool_choice|prompt|store|previous_response_id|\))")
"""Places in bodies of Responses with rules that the schema does not express: items and tools of foreign types are open
objects, and some fields exclude each other."""

Verdict: TypeAlias = tuple[bool, str]
"""Whether the server refused the body, and its message."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with served(tmp_path_factory.mktemp("contract")) as process:
        yield process
        alive(process)


def ask(client: httpx2.Client, path: str, asked: Asked) -> Verdict:
    """Send the body, and read the answer; of an event stream, read only the beginning."""
    url = path.format(chat_id="c1", stream_id="s1", mode="agent")
    with client.stream("POST", url, **asked.request) as answer:
        if answer.status_code not in (400, 413):
            assert answer.status_code < 500 or answer.status_code == 502, (answer.status_code, asked)
            return False, ""
        failure = httpx2.Response(answer.status_code, content=answer.read()).json()
        if isinstance(told := failure.get("error"), dict):  # OpenAI's form, and JSON-RPC's
            failure = {"detail": told["message"], "path": told.get("param")}
        elif failure.get("type") == "RUN_ERROR":  # AG-UI's form
            failure["detail"] = failure["message"]
        return True, f"{failure['detail']} ({failure.get('path', '')})"


def is_beyond_schema(operation_id: str, words: str) -> bool:
    if operation_id == "chatCompletions" and COMPLETIONS_BEYOND.search(words):
        return True
    if operation_id == "aiSdkChat" and AI_SDK_BEYOND.search(words):
        return True
    if operation_id in ("agUiRun", "agUiRunInMode") and AG_UI_BEYOND.search(words):
        return True
    if operation_id in ("createResponse", "createConversation") and RESPONSES_BEYOND.search(words):
        return True
    # The document gives the length of a blob in bytes.
    return operation_id != "uploadBlob" and any(known in words for known in BEYOND_SCHEMA)


def differences(server: Process, operation_id: str, bodies: Iterable[Asked]) -> tuple[list[str], int, int]:
    """Return the differences between document and server, the number of bodies that both accept, and the number of
    bodies that both refuse."""
    path, _ = (json_operations() | raw_operations())[operation_id]
    found, taken, refused = [], 0, 0
    with httpx2.Client(base_url=server.url, headers=HEADERS, timeout=DEADLINE_SECONDS) as client:
        for asked in bodies:
            is_refused, words = ask(client, path, asked)
            if not asked.misfit and is_refused and not is_beyond_schema(operation_id, words):
                found.append(f"fits, but is refused: {words}: {asked.request!r:.500}")
            elif asked.misfit and not is_refused:
                found.append(f"does not fit, but is taken: {asked.misfit:.200}: {asked.request!r:.500}")
            taken += not asked.misfit and not is_refused
            refused += is_refused and bool(asked.misfit)
    return found, taken, refused


def test_every_operation_with_a_body_has_examples() -> None:
    assert json_operations().keys() == EXAMPLES.keys()
    assert raw_operations().keys() == RAW_EXAMPLES.keys()


@pytest.mark.slow(60)
@pytest.mark.parametrize("operation_id", EXAMPLES)
def test_server_and_document_agree_on_bodies_that_differ_in_one_place(server: Process, operation_id: str) -> None:
    asked = (with_verdict(operation_id, body) for body in bodies(operation_id))
    found, taken, refused = differences(server, operation_id, asked)
    assert not found, "\n".join([f"{len(found)} differences", *found[:10]])
    assert taken >= 3 and refused >= 15, (taken, refused)


@pytest.mark.slow(60)
@pytest.mark.parametrize("operation_id", RAW_EXAMPLES)
def test_server_and_document_agree_on_raw_bodies(server: Process, operation_id: str) -> None:
    found, taken, refused = differences(server, operation_id, raw_bodies(operation_id))
    assert not found, "\n".join([f"{len(found)} differences", *found[:10]])
    assert taken >= 3 and refused >= 10, (taken, refused)


@pytest.mark.slow(40)
def test_server_and_document_agree_on_bodies_that_are_made_from_the_document(server: Process) -> None:
    from schemathesis import Case, GenerationMode  # imported here: only runs that need it pay 2 s for schemathesis

    from tests.fuzz.openapi import Operation, Request, operations

    made: dict[str, list[object]] = {name: [] for name in EXAMPLES}

    def make(name: str, operation: Operation, mode: GenerationMode) -> None:
        @hypothesis.seed(SEED)
        @settings(max_examples=40, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
        def collect(case: Request) -> None:
            assert isinstance(case, Case)
            if case.media_type == "application/json" and isinstance(case.body, dict | list | str | int | None):
                made[name].append(case.body)

        collect()

    for _, operation in operations(server.url):
        name = operation.definition.raw["operationId"]
        if name in made:
            make(name, operation, GenerationMode.POSITIVE)
            make(name, operation, GenerationMode.NEGATIVE)
    wrong = []
    for name, asked in made.items():
        found, taken, refused = differences(server, name, [with_verdict(name, body) for body in asked])
        assert taken and refused, (name, len(asked), taken, refused)
        wrong += [f"{name} {each}" for each in found]
    assert not wrong, "\n".join([f"{len(wrong)} differences", *wrong[:20]])
