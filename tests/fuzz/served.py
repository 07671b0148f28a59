"""A server to be fuzzed: real processes and HTTP over a real store, with tokens and the demo models.

Each fuzzer calls `alive` at its end, which checks that the server still answers and that nothing in it has crashed. No
answer may be a 5xx and no request may hang, so every request has a deadline.
"""

import contextlib
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx2

from tests.support.server import Process, started_server
from threadcast_protocol.wire.errors import CODES
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["DEADLINE_SECONDS", "HEADERS", "alive", "failure_of", "served"]

DEADLINE_SECONDS = 20.0
"""Maximum seconds of any answer: the longest wait that a client may request is `Prefer: wait=30`, and no fuzzer
requests that much."""

_TOKEN = "fuzz-secret-token"
HEADERS = {"Authorization": f"Bearer {_TOKEN}"}

_CONFIG = f"""
[models]
default = "demo/echo"

[limits]
turns_per_hour = 0
turns_per_day = 0
unauthorized_delay_seconds = 0  # most of the raw requests have no token

[[auth.tokens]]
id = "fuzz"
sha256 = "{hashlib.sha256(_TOKEN.encode()).hexdigest()}"
permissions = ["approve", "diagnostics"]
"""

_CLOSED = "the handler is closed"
"""uvicorn logs this line when bytes that are not HTTP follow a request that has no answer yet: uvicorn closes the
connection at once, and the answer is then written to a closed connection. No other client is affected."""


@contextlib.contextmanager
def served(base: Path) -> Iterator[Process]:
    with started_server(base, is_durable=True, config=_CONFIG) as process:
        yield process.wait_ready()


def alive(server: Process) -> None:
    """Check that the server answers, takes a command and carries it out, and that its log reports no crash."""
    with httpx2.Client(base_url=server.url, headers=HEADERS, timeout=DEADLINE_SECONDS) as client:
        assert client.get("/livez").json() == {"status": "ok"}
        assert client.get("/readyz").status_code == 200
        body: JsonObject = {"type": "user_message", "client_request_id": "last", "content": "still there?"}
        answer = client.post("/v1/chats/after-all/commands", json=body, headers={"Prefer": "wait=10"})
        assert answer.status_code == 200, answer.text
    crashed = [line for line in re.findall(r".*(?:crashed|Traceback).*", server.log_text()) if _CLOSED not in line]
    assert not crashed, [line[:200] + " … " + line[-400:] for line in crashed[:5]]


def failure_of(status: int, body: bytes, content_type: str | None) -> JsonObject:
    """Return an error in Threadcast's form (PROTOCOL §1) with a code of §17, also from inside a door's error."""
    assert 400 <= status < 500, (status, body[:500])
    assert content_type == "application/json", (status, content_type, body[:500])
    failure: JsonObject = json.loads(body)
    told = failure["error"] if isinstance(failure.get("error"), dict) else failure
    assert told["code"] in CODES and (told.get("detail") or told["message"]), failure
    return failure
