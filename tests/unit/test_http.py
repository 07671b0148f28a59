"""The socket and the process's bounds, without a server."""

import resource

import pytest
from structlog.testing import capture_logs

from server import http


@pytest.mark.parametrize(
    ("bounds", "wanted", "after"),
    [
        ((1_024, 1_048_576), (6_000, 1_048_576), 6_000),
        ((1_024, resource.RLIM_INFINITY), (6_000, resource.RLIM_INFINITY), 6_000),
        ((1_024, 4_096), (4_096, 4_096), 4_096),
        ((8_000, 8_000), None, 8_000),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None, resource.RLIM_INFINITY),
    ],
    ids=["raised", "no hard bound", "as far as may be", "enough already", "no bound"],
)
def test_as_many_files_may_be_open_as_streams_need_and_the_system_allows(
    bounds: tuple[int, int], wanted: tuple[int, int] | None, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: bounds)
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: asked.append(both))
    with capture_logs() as logs:
        assert http.allow_open_files(5_000) == after
    bounded = 0 < after < 6_000
    assert [(line["event"], line["log_level"]) for line in logs] == [("streams.bounded", "debug")] * bounded
    assert asked == ([] if wanted is None else [wanted])


def test_a_system_that_refuses_more_open_files_is_served_with_what_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(kind: int, both: tuple[int, int]) -> None:
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert http.allow_open_files(5_000) == 256
