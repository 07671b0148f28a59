"""Two principals on two web processes and a worker: a stranger tries every route, and receives no data of the owner.

`python -m tests.fuzz.principals` does the same for a chosen time.
"""

from pathlib import Path

import pytest

from tests.fuzz.principals.attempts import without_story
from tests.fuzz.principals.run import Round, app_routes
from tests.fuzz.principals.served import served
from tests.fuzz.run import SEED
from threadcast.api.operation import Answer, Operation, Parameter

pytestmark = pytest.mark.anyio

SECONDS, ATTEMPTS_MIN = 6.0, 600
"""Minimum duration and number of attempts for each of the two kinds of strangers. On an idle machine these attempts
take some 15 s; preparing and comparing takes another 15 s."""


@pytest.mark.slow(60)
async def test_nothing_of_one_principal_reaches_or_is_changed_by_another(tmp_path: Path) -> None:
    async with served(tmp_path) as fleet:
        for knows_ids in (True, False):
            this = Round(fleet, SEED + knows_ids, knows_ids=knows_ids)
            await this.run(SECONDS, ATTEMPTS_MIN)
            refused = this.answers["GET 404"] if knows_ids else this.answers["POST 404"]
            assert refused > 10, f"too few attempts to tell: {this.answers}"


def test_every_route_of_the_application_has_a_story() -> None:
    assert without_story(app_routes()) == []


def test_a_new_route_without_a_story_is_named() -> None:
    described = Operation(
        "POST",
        "/v1/chats/{chat_id}/secrets/{secret_id}",
        "readSecrets",
        "Read secrets.",
        tag="chats",
        parameters=[Parameter("of", str)],
        body=bytes,
        answers={200: Answer("The secrets.")},
    )
    lacking = without_story([described(lambda request: request)])
    assert [line.partition(": ")[2] for line in lacking] == [
        "no values for the part 'secret_id'",
        "no values for the query 'of'",
        "no body for 'readSecrets'",
    ]
