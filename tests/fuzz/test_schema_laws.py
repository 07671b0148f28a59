"""The committed schemas and the structs agree on generated inputs: a schema accepts every input that a struct reads or
writes.

The tests also count inputs that both refuse, since an empty schema would refuse nothing.
"""

import contextlib
import json
from collections import Counter
from random import Random

import msgspec
from jsonschema import Draft202012Validator

import threadcast.api.schema
from tests.fuzz.run import for_inputs
from tests.fuzz.targets import all_targets
from tests.fuzz.targets.commands import check_command
from threadcast_protocol.framing.codec import decode_event, encode
from threadcast_protocol.framing.sse import EventFrame, Frame, FrameParser
from threadcast_protocol.wire.commands import body_digest, decode_command
from threadcast_protocol.wire.errors import Refused

INPUTS = 2_000
ENOUGH = 50
"""Minimum number of inputs for each verdict. Fewer inputs would test little, and more inputs would take long, because a
schema refuses inputs slowly."""

_COMMITTED = threadcast.api.schema.DOCUMENTS


def committed(name: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads((_COMMITTED / name).read_text("utf-8")))


def test_every_command_that_is_accepted_fits_the_committed_schema() -> None:
    schema = committed("commands.schema.json")
    counts: Counter[str] = Counter()

    def judge(body: bytes, _: Random) -> None:
        try:
            check_command(decode_command(body))
            body_digest(body)  # the schema also checks fields that the decoder skips
        except Refused:
            if counts["refused"] < ENOUGH:
                with contextlib.suppress(ValueError, RecursionError):
                    counts["refused"] += not schema.is_valid(json.loads(body))
            return
        counts["accepted"] += 1
        schema.validate(msgspec.json.decode(body))

    for_inputs(all_targets()["command"].corpus, INPUTS, judge)
    assert min(counts["accepted"], counts["refused"]) >= ENOUGH, counts


def test_every_event_that_is_written_fits_the_committed_schema() -> None:
    schema = committed("events.schema.json")
    counts: Counter[str] = Counter()

    def judge(data: bytes, _: Random) -> None:
        try:
            event = decode_event(data)
        except msgspec.DecodeError:
            return
        (frame,) = FrameParser().feed(Frame("c1", encode(event), 1, 7).for_base(3))
        assert isinstance(frame, EventFrame)
        schema.validate(msgspec.json.decode(frame.data))
        counts["accepted"] += 1

    for_inputs(all_targets()["event"].corpus, INPUTS, judge)
    assert counts["accepted"] > 20, counts
