"""Known secrets are masked anywhere in a text, before traces are cut to size."""

import io
import json
import secrets

import msgspec
import pytest
import structlog

from threadcast.actor.traces import compose
from threadcast.agent_loop.tracing import RoundRecord, ToolTrace
from threadcast.base.redaction import Redactor
from threadcast.base.telemetry import configure_logging
from threadcast.settings import Settings
from threadcast.settings.secrets import secrets_of
from threadcast.settings.values import Secret
from threadcast.store.trace_records import RECORD_MAX_BYTES, decompose
from threadcast_protocol.wire.messages import Message

KEY = "sk-planted-0123456789"


def tool_trace(output: str) -> ToolTrace:
    return ToolTrace(
        run_id="run_1",
        round=0,
        tool_call_id="c1",
        name="t",
        input="{}",
        output=output,
        outcome="done",
        is_abandoned=False,
        elapsed_ms=1,
        ended_at_ms=1,
    )


def test_every_secret_of_the_settings_is_known() -> None:
    settings = msgspec.convert(
        {
            "store": {"url": "redis://me:pass%20word-1@127.0.0.1/0"},
            "models": {"providers": {"p": {"api_key": KEY}}},
            "mcp": {"m": {"url": "http://127.0.0.1/mcp", "headers": {"Authorization": "Bearer mcp-token-1"}}},
        },
        Settings,
        dec_hook=lambda kind, value: kind(value),
    )
    known = set(secrets_of(settings))
    assert {KEY, "pass%20word-1", "pass word-1", "mcp-token-1"} <= known


def test_of_a_store_behind_sentinel_both_passwords_are_known() -> None:
    url = "redis+sentinel://me:pass%20word-1@[::1]:1,b:2/service?sentinel_password=pass%2Fword+2"
    assert {"pass word-1", "pass/word 2"} <= set(secrets_of(Secret(url)))


@pytest.mark.parametrize("path", ["", "/", "/0"])
def test_of_a_cluster_the_password_among_the_options_is_known(path: str) -> None:
    assert "in the options" in set(secrets_of(Secret(f"redis+cluster://a:1,b:2{path}?password=in+the+options")))


def test_a_secret_is_masked_in_words_in_json_and_in_urls_and_short_ones_are_let_be() -> None:
    odd = 'with "quotes" & signs'
    redactor = Redactor([KEY, odd, "ollama", KEY + "-longer"])
    assert redactor.text(f"the key {KEY} is wrong") == "the key *** is wrong"
    assert redactor.text(f"{KEY}-longer") == "***"
    assert odd not in json.loads(redactor.text(json.dumps({"said": odd})))["said"]
    assert "quotes" not in redactor.text("?key=with%20%22quotes%22%20%26%20signs")
    assert redactor.text("ollama serves") == "ollama serves"
    assert redactor.text("Authorization: Bearer abc.def-123456") == "Authorization: ***"
    assert redactor.text("authorization: BEARER%20abc.def-123456 of somebody") == "authorization: *** of somebody"
    assert redactor.text("the bearer of news") == "the bearer of news"


def test_a_log_line_holds_no_known_secret_not_even_in_its_traceback() -> None:
    out = io.StringIO()
    configure_logging("json", "debug", out, Redactor([KEY]))
    try:
        raise RuntimeError(f"refused {KEY}")
    except RuntimeError:
        structlog.get_logger().exception("something.failed", detail=[f"{KEY} again"], other={"deep": {"x": KEY}})
    line = json.loads(out.getvalue())
    assert KEY not in out.getvalue()
    assert "RuntimeError: refused ***" in line["exception"] and line["other"] == {"deep": {"x": "***"}}


def test_a_trace_is_masked_before_it_is_cut() -> None:
    (record,) = compose([tool_trace(secrets.token_hex(100_000) + KEY + secrets.token_hex(100_000))], Redactor([KEY]))
    assert len(record.data) <= RECORD_MAX_BYTES
    (read,) = decompose(record.data)
    assert read["cut"] == ["output"] and "characters cut" in read["output"]
    assert not any(KEY[:n] in read["output"] for n in (8, len(KEY)))


def test_a_large_request_keeps_its_beginning_and_more_of_its_end() -> None:
    words = [secrets.token_hex(2_000) for _ in range(500)]
    round_record = RoundRecord(
        run_id="run_1",
        round=0,
        message_id="m",
        principal="ann",
        scope=[],
        context={},
        run_params={},
        run_started_at_ms=1,
        settings={},
        model="p/m",
        system="be kind",
        messages=[Message(role="user", message_id=f"m{n}", content=word) for n, word in enumerate(words)],
    )
    (record,) = compose([round_record], Redactor())
    assert len(record.data) <= RECORD_MAX_BYTES
    (read,) = decompose(record.data)
    ids = [message["message_id"] for message in read["messages"]]
    assert ids[0] == "m0" and ids[-1] == "m499" and 5 <= len(ids) < 500
    assert read["system"] == "be kind" and read["cut"] == ["messages"]
