"""Kills, by kill -9, the worker whose tool asks a person: the question ends with its call, and a call that may run
again asks again."""

from pathlib import Path

import pytest

from tests.integration.test_questions_http import answer, is_asked, questions, results
from tests.support.fleet import Fleet
from tests.support.reader import watching
from tests.support.server import command, user_message
from threadcast_protocol.wire.messages import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

APP = Path(__file__).parents[1] / "integration/asking_tools.py"
PARAMS: JsonObject = {"model": "demo/tools?rate=0"}


async def test_a_call_that_may_run_again_asks_again_after_kill_9(fleet: Fleet) -> None:
    async with watching(fleet.url, "c1") as stayed:
        await command(fleet.url, "c1", user_message("a", 'call ask {"text":"Well?"}', params=PARAMS))
        await stayed.until(is_asked)
        (before,) = questions(stayed)
        assert fleet.kill_owner("c1")
        await stayed.until(lambda tab: is_asked(tab) and questions(tab)[0]["id"] != before["id"])
        (asked,) = questions(stayed)
        async with watching(fleet.url, "c1") as joined:
            await joined.until(is_asked)
            assert questions(joined) == [asked]
            body = {"type": "tool_decision", "client_request_id": "d", "tool_call_id": asked["id"], "accepted": True}
            await command(fleet.url, "c1", {**body, "edited_input": answer("yes")})
            await stayed.at_rest()
            await joined.at_rest()
        assert results(stayed) == ["the answer is yes"]
        assert joined.snapshot == stayed.snapshot


async def test_a_call_that_may_not_run_again_leaves_no_question_after_kill_9(fleet: Fleet) -> None:
    async with watching(fleet.url, "c1") as stayed:
        await command(fleet.url, "c1", user_message("a", 'call ask_once {"text":"Well?"}', params=PARAMS))
        await stayed.until(is_asked)
        assert fleet.kill_owner("c1")
        await stayed.at_rest()
        assert not is_asked(stayed)
        (result,) = results(stayed)
        assert result.startswith("The outcome of this call is unknown")
