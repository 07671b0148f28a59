"""A long run against a separate server: `python -m tests.fuzz --seconds 600`.

The run repeats the rounds of `test_http.py`, each with a seed derived from the first seed, and prints the requests and
statuses. The run ends at the first violation and prints the command that reproduces the violation.
"""

import collections
import platform
import re
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from random import Random

from tests.fuzz import corpus
from tests.fuzz.raw import ask, broken_request, odd_request, send_raw
from tests.fuzz.served import alive, failure_of, served

__all__ = ["EXAMPLES", "asked_for", "odd_round", "raw_round"]

EXAMPLES, STORIES, STEPS, ODD_REQUESTS, RAW_REQUESTS = 15, 15, 10, 500, 300
"""Counts of one round: requests of each operation, stories and their steps, odd requests, and requests that are not
HTTP. A round takes half a minute."""


def odd_round(url: str, seed: int, count: int, answers: collections.Counter[str]) -> None:
    """Send well-formed requests with odd values, and check that statuses are below 500 and that refusals have
    Threadcast's form. Raises AssertionError."""
    random = Random(seed)
    bodies = [*corpus.commands(), *corpus.exports(), b'{"message":"hi"}', corpus.PNG]
    for number in range(count):
        method, request = odd_request(random, bodies)
        try:
            answer = ask(url, method, request)
            answers[f"odd {answer.status}"] += 1
            assert answer.status < 500, answer
            # A preflight is answered by Starlette's CORS in plain text, and a HEAD without a body.
            if answer.status >= 400 and method not in ("HEAD", "OPTIONS"):
                failure_of(answer.status, answer.body, answer.headers.get("content-type"))
        except Exception as wrong:  # any exception is reported with its request
            raise AssertionError(f"seed {seed}, odd request {number}: {wrong}; {request[:800]!r}") from wrong


_STATUS = re.compile(rb"HTTP/1\.1 ([0-9]{3})")


def raw_round(url: str, seed: int, count: int, answers: collections.Counter[str]) -> None:
    """Send arbitrary bytes, and check that the connection ends before the deadline, without a status of 5xx. Raises
    AssertionError."""
    random = Random(seed)
    bodies = corpus.commands()
    for number in range(count):
        data = broken_request(random, bodies)
        try:
            came = send_raw(url, data, random)
            first = _STATUS.match(came)
            answers[f"raw {first[1].decode() if first else 'closed'}"] += 1
            assert first is None or first[1] < b"500", came[:500]
        except Exception as wrong:  # as above
            raise AssertionError(f"seed {seed}, raw request {number}: {wrong}; {data[:800]!r}") from wrong


def asked_for(seconds: float, seed: int, examples: int = EXAMPLES) -> int:
    """Make rounds until the time is over, at least one round, and return the exit status. With fewer `examples` of each
    operation, the other counts of a round shrink in proportion."""
    from tests.fuzz.openapi import (
        operations,
        stories,
        try_operation,
    )  # imported here, because tests that do not need schemathesis import this module too

    answers: collections.Counter[str] = collections.Counter()
    began = time.monotonic()
    rounds, share = 0, examples / EXAMPLES
    with tempfile.TemporaryDirectory(prefix="threadcast-fuzz-") as base, served(Path(base)) as server:
        while rounds == 0 or time.monotonic() - began < seconds:
            this = seed + rounds
            try:
                for _, operation in operations(server.url):
                    try_operation(operation, examples, this)
                stories(server.url, max(1, round(STORIES * share)), STEPS, this)
                odd_round(server.url, this, round(ODD_REQUESTS * share), answers)
                raw_round(server.url, this, round(RAW_REQUESTS * share), answers)
                alive(server)
            except Exception as wrong:  # any exception that the fuzzer found
                print(
                    f"round with --seed {this}: {wrong}", *getattr(wrong, "exceptions", ()), sep="\n", file=sys.stderr
                )
                return 1
            rounds += 1
            print(f"  {rounds} rounds, {time.monotonic() - began:.0f} s", flush=True)
    for kind, count in sorted(answers.items()):
        print(f"{kind:<16}{count:>8,}")
    print(
        f"{rounds} rounds in {time.monotonic() - began:.0f} s from seed {seed}: 0 answers of 5xx, 0 hangs; "
        f"schemathesis {version('schemathesis')}, Python {platform.python_version()}"
    )
    return 0
