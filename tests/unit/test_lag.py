"""The lag of the event loop is measured, and a blockage is logged once, with its location in the code and without
values."""

import io
import json
import time

import anyio
import pytest

from threadcast.base.telemetry import Metrics, configure_logging
from threadcast.process import loop_lag as lag
from threadcast.process.loop_lag import watched_lag

pytestmark = pytest.mark.anyio


def lines(out: io.StringIO, event: str) -> list[dict[str, object]]:
    return [line for line in map(json.loads, out.getvalue().splitlines()) if line["event"] == event]


async def test_a_block_is_counted_and_named_by_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag, "BLOCKED_SECONDS", 0.3)
    monkeypatch.setattr(lag, "PROBE_SECONDS", 0.05)
    out, metrics = io.StringIO(), Metrics()
    configure_logging("json", "info", out)
    async with watched_lag(metrics):
        await anyio.sleep(0.1)
        hold_up_everybody("a secret value")
        with anyio.fail_after(10):
            while not lines(out, "loop.blocked"):
                await anyio.sleep(0.02)
    during, after = lines(out, "loop.is_blocked")[0], lines(out, "loop.blocked")[0]
    assert "hold_up_everybody" in str(during["at"]) and "test_lag.py" in str(after["at"])
    assert isinstance(after["lag_seconds"], float) and after["lag_seconds"] > 0.5
    assert "secret" not in out.getvalue()
    shown = metrics.render().decode()
    assert "threadcast_event_loop_blocked_total 0.0" not in shown
    assert 'threadcast_event_loop_lag_seconds_bucket{le="0.5"} ' in shown


async def test_a_loop_that_turns_is_measured_all_the_time() -> None:
    metrics = Metrics()
    async with watched_lag(metrics):
        await anyio.sleep(0.6)
    assert "threadcast_event_loop_lag_seconds_count 0.0" not in metrics.render().decode()


def hold_up_everybody(_: str) -> None:
    time.sleep(0.8)
