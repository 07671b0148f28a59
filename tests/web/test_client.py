"""The TypeScript client: its own tests by node, the reducer against recorded logs, and all of it on a real server."""

import json
from pathlib import Path

import anyio
import pytest

from tests.integration.harness import start
from tests.web.installed import node_test
from tests.web.streams import recorded_streams

CONFIG = """
[models]
default = "demo/essay"

[tools.open_file]
policy = "client"
description = "Opens a file in the editor."
"""


@pytest.mark.parametrize("name", ["clock", "frames", "hub", "outbox", "postman", "stream"])
def test_the_parts_of_the_client_do_what_their_tests_say(name: str) -> None:
    node_test(name)


def test_both_reducers_make_the_same_states_of_every_recorded_log(tmp_path: Path) -> None:
    streams = tmp_path / "streams.json"
    streams.write_text(json.dumps(recorded_streams()))
    node_test("reducer", {"STREAMS": str(streams)})


def test_the_client_keeps_its_promises_on_a_real_server(tmp_path: Path) -> None:
    config = tmp_path / "threadcast.toml"
    config.write_text(CONFIG)
    arguments = ["serve", "--port", "0", "--data-dir", str(tmp_path / "data"), "--config", str(config)]
    with start(*arguments, log=tmp_path / "log") as process:
        anyio.run(process.ready)
        node_test("live", {"THREADCAST_URL": process.url})
