"""The generated schema matches the structs, PROTOCOL.md names every part of it, and both hold for examples."""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from jsonschema import Draft202012Validator

from tests.unit.samples import COMMANDS, EVENTS, SNAPSHOT, tags_of
from threadcast.api.schema import DOCUMENTS, RENEW, commands_schema, events_schema, generate, openapi_document, outdated
from threadcast.api.schema.__main__ import main
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.framing.sse import EventFrame, Frame, FrameParser, snapshot_frame
from threadcast_protocol.wire import deltas
from threadcast_protocol.wire.commands import Command, decode_command
from threadcast_protocol.wire.errors import CODES, BadRequest
from threadcast_protocol.wire.events import Event, Snapshot
from threadcast_protocol.wire.messages import JsonObject
from threadcast_protocol.wire.thread import Thread, ThreadPatch

COMMAND_SCHEMA = Draft202012Validator(commands_schema())
EVENT_SCHEMA = Draft202012Validator(events_schema())
OPENAPI = openapi_document()


def on_the_wire(block: bytes) -> JsonObject:
    (frame,) = FrameParser().feed(block)
    assert isinstance(frame, EventFrame)
    event: JsonObject = msgspec.json.decode(frame.data)
    return event


# --- the files


def test_committed_schema_is_what_the_structs_say() -> None:
    assert not outdated(), f"renew the schema with: {RENEW}"


def test_generating_twice_gives_the_same_text() -> None:
    assert generate() == generate()


def test_check_names_the_command_that_renews_a_changed_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("threadcast.api.schema.DOCUMENTS", tmp_path)
    assert main(["--check"]) == 1
    assert capsys.readouterr().out.count(RENEW) == 3
    assert main([]) == 0
    assert main(["--check"]) == 0
    changed = tmp_path / "events.schema.json"
    changed.write_text(changed.read_text() + "\n")
    capsys.readouterr()
    assert main(["--check"]) == 1
    assert capsys.readouterr().out == f"events.schema.json differs from the structs; renew it with: {RENEW}\n"


@pytest.mark.parametrize("document", [commands_schema(), events_schema(), *OPENAPI["components"]["schemas"].values()])
def test_every_schema_is_a_valid_json_schema(document: JsonObject) -> None:
    Draft202012Validator.check_schema(document)


# --- examples


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__struct_config__.tag)
def test_event_as_it_is_sent_fits_the_schema(event: Event) -> None:
    EVENT_SCHEMA.validate(on_the_wire(Frame("c1", encode(event), 1, 7).for_base(3)))


def test_snapshot_as_it_is_sent_fits_the_schema() -> None:
    EVENT_SCHEMA.validate(on_the_wire(snapshot_frame("c1", encode(SNAPSHOT), 1, 7)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"seq": "1", "type": "pause_cleared"},
        {"chat_id": "c1", "type": "pause_cleared"},
        {"chat_id": "c1", "seq": 1, "type": "pause_cleared"},
        {"chat_id": "c1", "seq": "1", "type": "unheard_of"},
        {"chat_id": "c1", "seq": "1", "type": "message_removed"},
    ],
)
def test_what_is_no_event_does_not_fit_the_schema(wrong: JsonObject) -> None:
    assert not EVENT_SCHEMA.is_valid(wrong)


@pytest.mark.parametrize("body", COMMANDS.values(), ids=COMMANDS)
def test_command_fits_the_schema_and_decodes(body: JsonObject) -> None:
    COMMAND_SCHEMA.validate(body)
    decode_command(msgspec.json.encode(body))


def _damaged(body: JsonObject) -> Iterator[JsonObject]:
    for key in body:
        yield {name: value for name, value in body.items() if name != key}
        if key not in ("content", "patch"):  # these have separate checks and messages
            yield body | {key: {"no": "such"}} if not isinstance(body[key], dict) else body | {key: ["no"]}


@pytest.mark.parametrize("body", COMMANDS.values(), ids=COMMANDS)
def test_schema_and_decoder_refuse_the_same_damaged_commands(body: JsonObject) -> None:
    for damaged in _damaged(body):
        try:
            decode_command(msgspec.json.encode(damaged))
        except BadRequest:
            is_accepted = False
        else:
            is_accepted = True
        assert COMMAND_SCHEMA.is_valid(damaged) == is_accepted, damaged


# --- the OpenAPI document


def _references(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for inner in value.values():
            yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)


def _operations() -> Iterator[tuple[str, JsonObject, list[JsonObject]]]:
    for path, item in OPENAPI["paths"].items():
        for verb in ("get", "post", "delete"):
            if verb in item:
                yield path, item[verb], [*item.get("parameters", []), *item[verb].get("parameters", [])]


def test_every_reference_of_the_openapi_document_leads_somewhere() -> None:
    names = {reference.removeprefix("#/components/schemas/") for reference in _references(OPENAPI)}
    assert names <= set(OPENAPI["components"]["schemas"])


def test_every_operation_has_a_name_of_its_own_and_declares_its_path_parameters() -> None:
    names = [operation["operationId"] for _, operation, _ in _operations()]
    assert len(names) == len(set(names))
    for path, operation, parameters in _operations():
        assert set(re.findall(r"{(\w+)}", path)) == {p["name"] for p in parameters if p["in"] == "path"}
        assert operation["responses"]


def test_every_error_answer_has_the_one_form() -> None:
    for path, operation, _ in _operations():
        for status, answer in operation["responses"].items():
            if int(status) >= 400 and path != "/readyz" and status != "502":
                is_of_door = operation["tags"] == ["doors"]  # another server's form
                wanted = {"type": "object"} if is_of_door else {"$ref": "#/components/schemas/Failure"}
                assert answer["content"]["application/json"]["schema"] == wanted, path


# --- the words

_PROTOCOL = (DOCUMENTS.parent / "PROTOCOL.md").read_text("utf-8")
_WORDS = set(re.findall(r"`([^`\n]+)`", _PROTOCOL))


@pytest.mark.parametrize(
    "words",
    [
        tags_of(Command),
        tags_of(Event) | tags_of(Event | Snapshot),
        tags_of(deltas.DeltaOp),
        CODES,
        set(ThreadPatch.__struct_fields__),
        set(Thread.__struct_fields__),
    ],
    ids=["commands", "events", "deltas", "codes", "parameters", "thread"],
)
def test_protocol_names_every(words: frozenset[str]) -> None:
    assert words - _WORDS == set()


def test_protocol_names_every_field_of_a_command() -> None:
    fields = {name for body in COMMANDS.values() for name in body}
    assert fields - _WORDS == set()


def test_protocol_names_every_endpoint() -> None:
    assert [path for path, _, _ in _operations() if path not in _PROTOCOL] == []


def test_every_field_of_the_typescript_types_has_a_type() -> None:
    (types,) = (text for path, text in generate().items() if path.name == "types.ts")
    assert ": ;" not in types and "= ;" not in types and "input_schema?: JsonObject;" in types
