"""An HTTP client accepts the requests of `scripts/bench bombs` for sending."""

import h11
from bench.inputs import long_headers


def test_every_long_header_can_be_sent() -> None:
    count = 0
    for each in long_headers():
        others = [] if "Host" in each.headers else [("Host", "x")]
        # raises if the request is refused
        h11.Request(method=each.method, target="/", headers=[*others, *each.headers.items()])
        count += 1
    assert count > 100
