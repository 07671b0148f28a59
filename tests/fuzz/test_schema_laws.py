"""The committed schemas and the structs agree on inputs that nobody thought of: what a struct takes or writes fits.

The other way round is spot-checked: whatever the schema refuses, the decoder refuses too, which is the same law read
from its other end; that a schema refuses at all is counted, else it would be empty.
"""

import contextlib
import json
import os
from pathlib import Path

import msgspec
from jsonschema import Draft202012Validator

import protocol.schema
from protocol.codec import decode_event, encode
from protocol.commands import body_digest, decode_command
from protocol.errors import Refused
from protocol.sse import EventFrame, Frame, FrameParser
from tests.fuzz.run import Inputs
from tests.fuzz.targets import all_targets
from tests.fuzz.targets.commands import check_command

SEED = int(os.environ.get("FUZZ_SEED", "1"))
INPUTS = 2_000
ENOUGH = 50
"""Accepted, and refused by both: fewer would test little, and what is refused is slow to judge."""

_COMMITTED = Path(protocol.schema.__file__).parent


def committed(name: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads((_COMMITTED / name).read_text("utf-8")))


def test_every_command_that_is_accepted_fits_the_committed_schema() -> None:
    schema, inputs = committed("commands.schema.json"), Inputs(SEED, all_targets()["command"])
    accepted = refused = 0
    for number in range(INPUTS):
        body = inputs.of(number)[0]
        try:
            check_command(decode_command(body))
            body_digest(body)  # which reads what the decoder skips
        except Refused:
            if refused < ENOUGH:
                with contextlib.suppress(ValueError, RecursionError):
                    refused += not schema.is_valid(json.loads(body))
            continue
        accepted += 1
        wrong = next(schema.iter_errors(msgspec.json.decode(body)), None)
        assert wrong is None, f"seed {SEED}, number {number}: {wrong.message} in {body[:800]!r}"
    assert accepted >= ENOUGH and refused >= ENOUGH, (accepted, refused)


def test_every_event_that_is_written_fits_the_committed_schema() -> None:
    schema, inputs = committed("events.schema.json"), Inputs(SEED, all_targets()["event"])
    accepted = 0
    for number in range(INPUTS):
        data = inputs.of(number)[0]
        try:
            event = decode_event(data)
        except msgspec.DecodeError:
            continue
        (frame,) = FrameParser().feed(Frame("c1", encode(event), 1, 7).for_base(3))
        assert isinstance(frame, EventFrame)
        wrong = next(schema.iter_errors(msgspec.json.decode(frame.data)), None)
        assert wrong is None, f"seed {SEED}, number {number}: {wrong.message} in {data[:800]!r}"
        accepted += 1
    assert accepted > 20, accepted
