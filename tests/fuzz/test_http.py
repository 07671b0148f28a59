"""A real server receives every request that the document lists and many that no client should send: no 5xx, no hanging
request.

`python -m tests.fuzz` does the same for a chosen time.
"""

import socket
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.fuzz.http import odd_round, raw_round
from tests.fuzz.run import SEED
from tests.fuzz.served import alive, served
from tests.support.server import Process


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with served(tmp_path_factory.mktemp("fuzzed")) as process:
        yield process
        alive(process)


@pytest.mark.slow(40)
def test_every_operation_of_the_document_answers_as_the_document_says(server: Process) -> None:
    # imported here: only runs that need it pay 2 s for schemathesis
    from tests.fuzz.openapi import operations, try_operation

    failed = []
    for label, operation in operations(server.url):
        try:
            try_operation(operation, 12, SEED)
        except Exception as wrong:  # every operation is requested, and every violation is reported
            failed.append(f"{label}, seed {SEED}: {getattr(wrong, 'exceptions', [wrong])}")
    assert not failed, "\n\n".join(failed)


@pytest.mark.slow
def test_stories_that_follow_the_links_of_the_document_go_on_as_it_says(server: Process) -> None:
    from tests.fuzz.openapi import stories

    answers = stories(server.url, 20, 8, SEED)
    reached = {each for each in answers if each.endswith((" 200", " 201", " 202", " 204"))}
    assert len(reached) >= 8, f"stories that reach little test little: {answers}"


def test_odd_ids_headers_and_queries_get_an_answer_below_500_in_our_form(server: Process) -> None:
    odd_round(server.url, SEED, 400, Counter())


def test_bytes_that_are_no_requests_neither_hang_nor_break_the_server(server: Process) -> None:
    raw_round(server.url, SEED, 300, Counter())
    alive(server)


def test_requests_that_never_end_take_nothing_from_others(server: Process) -> None:
    """Opens two hundred connections that send half a request; the server still answers other connections."""
    place = server.url.removeprefix("http://").partition(":")
    halves: list[socket.socket] = []
    try:
        for number in range(200):
            half = socket.create_connection((place[0], int(place[2])), 10)
            halves.append(half)
            request = b"POST /v1/chats/half/commands HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n{"
            half.sendall(request[: number % len(request)])
        alive(server)
    finally:
        for half in halves:
            half.close()
