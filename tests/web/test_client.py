"""Tests the TypeScript client: its parts, its reducer with recorded logs, and the whole client with a real server."""

import json
from pathlib import Path

import pytest

from tests.support.server import started_server
from tests.web.installed import node_test
from tests.web.streams import recorded_streams

CONFIG = """
[models]
default = "demo/essay"

[tools.open_file]
policy = "client"
description = "Opens a file in the editor."
"""


@pytest.mark.parametrize("name", ["clock", "frames", "hub", "outbox", "sender", "stream"])
def test_the_parts_of_the_client_do_what_their_tests_say(name: str) -> None:
    node_test(name)


def test_both_reducers_make_the_same_states_of_every_recorded_log(tmp_path: Path) -> None:
    streams = tmp_path / "streams.json"
    streams.write_text(json.dumps(recorded_streams()))
    node_test("reducer", {"STREAMS": str(streams)})


def test_the_client_keeps_its_promises_on_a_real_server(tmp_path: Path) -> None:
    with started_server(tmp_path, is_durable=True, config=CONFIG) as process:
        node_test("live", {"THREADCAST_URL": process.wait_ready().url})
