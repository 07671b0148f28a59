"""Logs and metrics: every line has the same form and no secret, and all names are in one list."""

import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Any, TextIO

import pytest
import structlog

from threadcast.base.telemetry import METRICS_CONTENT_TYPE, Metrics, configure_logging
from threadcast.settings import Secret


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def lines(out: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


@pytest.mark.row("DIAG-4")
def test_a_line_is_json_with_what_was_bound_at_the_boundary() -> None:
    out = io.StringIO()
    configure_logging("json", "info", out)
    with structlog.contextvars.bound_contextvars(chat_id="c1", run_id="r1"):
        structlog.get_logger().info("run.finished", duration_ms=3, round=2)
    (line,) = lines(out)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", str(line.pop("timestamp")))
    assert line == {
        "event": "run.finished", "level": "info", "chat_id": "c1", "run_id": "r1", "duration_ms": 3, "round": 2,
    }  # fmt: skip


@pytest.mark.row("DIAG-4")
def test_secrets_are_masked_wherever_they_stand() -> None:
    out = io.StringIO()
    configure_logging("json", "info", out)
    headers = {"Authorization": "Bearer hunter2", "X-Api-Key": "hunter2", "accept": "*/*"}
    structlog.get_logger().info("request.refused", headers=headers, token="hunter2", key=Secret("hunter2"), tokens=7)
    assert "hunter2" not in out.getvalue()
    (line,) = lines(out)
    assert line["headers"] == {"Authorization": "***", "X-Api-Key": "***", "accept": "*/*"}
    assert (line["token"], line["key"], line["tokens"]) == ("***", "Secret('***')", 7)


def test_lines_of_libraries_take_the_same_way_out_under_one_event_name() -> None:
    out = io.StringIO()
    configure_logging("json", "info", out)
    logging.getLogger("some.library").warning("pool %s is full", "a")
    logging.getLogger("some.library").debug("not at this level")
    (line,) = lines(out)
    assert (line["event"], line["text"], line["logger"]) == ("library.logged", "pool a is full", "some.library")


def test_libraries_that_would_log_bodies_stay_quiet_even_while_debugging() -> None:
    out = io.StringIO()
    configure_logging("json", "debug", out)
    for name in ("openai._base_client", "httpx2", "httpcore2.http11"):
        logging.getLogger(name).debug("Request options: what somebody said")
    structlog.get_logger().debug("lease.renewed")
    assert [line["event"] for line in lines(out)] == ["lease.renewed"]


def test_exceptions_are_part_of_their_line() -> None:
    out = io.StringIO()
    configure_logging("json", "info", out)
    try:
        raise ValueError("broken")
    except ValueError:
        structlog.get_logger().exception("actor.crashed")
    (line,) = lines(out)
    assert "ValueError: broken" in str(line["exception"])


def test_pretty_tracebacks_show_no_local_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    class Rich(structlog.dev.ConsoleRenderer):
        """Behaves as if rich were installed."""

        def __init__(self, **options: Any) -> None:  # Any: structlog's
            super().__init__(**{"exception_formatter": _traceback_with_locals, **options})

    monkeypatch.setattr(structlog.dev, "ConsoleRenderer", Rich)
    out = io.StringIO()
    configure_logging("pretty", "info", out)
    try:
        key = "hunter2"
        raise ValueError(len(key))
    except ValueError:
        structlog.get_logger().exception("actor.crashed")
    assert "ValueError: 7" in out.getvalue()
    assert "hunter2'" not in out.getvalue()


def _traceback_with_locals(out: TextIO, exc_info: Any) -> None:  # Any: structlog's
    out.write(f"{exc_info[1]!r} {exc_info[2].tb_frame.f_locals}")


def test_pretty_lines_are_for_people() -> None:
    out = io.StringIO()
    configure_logging("pretty", "info", out)
    structlog.get_logger().info("run.finished", outcome="complete")
    assert re.search(r"\d\d:\d\d:\d\d .*run\.finished +outcome=complete", out.getvalue())


def test_every_metric_is_there_before_anything_happened() -> None:
    shown = Metrics().render().decode()
    names = set(re.findall(r"(?m)^# HELP (?:threadcast_)?(\w+)", shown))
    assert names >= {
        "http_requests_total", "commands_accepted_total", "commands_refused_total", "appends_total", "append_seconds",
        "store_errors_total", "oldest_due_seconds", "chats_active", "inbox_wait_seconds", "fenced_total",
        "takeovers_total",
        "quarantined_total", "poisoned_total", "runs_finished_total", "model_calls_total", "model_first_delta_seconds",
        "tool_calls_total", "subscribers_inflight", "append_to_send_seconds", "resyncs_total", "streams_ended_total",
        "relay_reloads_total", "event_loop_lag_seconds", "process_resident_memory_bytes",
    }  # fmt: skip
    assert METRICS_CONTENT_TYPE.startswith("text/plain")


def test_two_processes_in_one_test_count_for_themselves() -> None:
    one, other = Metrics(), Metrics()
    one.resyncs.labels("slow").inc()
    assert b'threadcast_resyncs_total{reason="slow"} 1.0' in one.render()
    assert b"slow" not in other.render()


def test_a_wait_of_many_seconds_for_a_worker_can_be_told_from_one_of_a_few() -> None:
    metrics = Metrics()
    metrics.inbox_wait_seconds.observe(20.0)

    def waits_within(bound: str) -> float | None:
        return metrics.registry.get_sample_value("threadcast_inbox_wait_seconds_bucket", {"le": bound})

    assert (waits_within("5.0"), waits_within("60.0")) == (0.0, 1.0), "the alarm stands at 5 s"
