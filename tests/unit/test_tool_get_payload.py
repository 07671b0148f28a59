"""The built-in tool that reads a payload: it returns the data as JSON, or a sentence that names the available
payloads."""

import msgspec
import pytest

from tests.unit.tool_desk import tool_context
from threadcast.tools.context import ToolContext
from threadcast.tools.payloads import NAMED_MAX_COUNT, get_payload
from threadcast.tools.runner import ToolRunner
from threadcast_protocol.wire.events import PayloadAdded

pytestmark = pytest.mark.anyio


def context(*payload_ids: str) -> ToolContext:
    payloads = {
        each: PayloadAdded(
            payload_id=each,
            payload_type="chart",
            data={"bars": [1, 2], "of": each},
            summary="s",
            source="tool",
            message_id="m1",
        )
        for each in payload_ids
    }
    return tool_context(payloads=payloads)


async def ask(payload_id: str, *known: str) -> tuple[str, bool]:
    arguments = msgspec.json.encode({"payload_id": payload_id}).decode()
    done = await ToolRunner().run(get_payload, "get_payload", arguments, context(*known))
    return done.result.content, done.result.failed


@pytest.mark.row("PAY-7")
async def test_the_data_of_a_payload_is_given_as_json() -> None:
    assert await ask("pl_2", "pl_1", "pl_2") == ('{"bars":[1,2],"of":"pl_2"}', False)


@pytest.mark.row("PAY-7")
async def test_an_unknown_id_is_answered_with_the_known_ones() -> None:
    assert await ask("pl_9", "pl_1") == ("There is no payload 'pl_9' in this chat. Known ids: pl_1.", True)
    assert await ask("pl_9") == ("There is no payload 'pl_9' in this chat. Known ids: none.", True)
    sentence, _ = await ask("pl_x", *(f"pl_{n}" for n in range(100)))
    assert sentence.count("pl_") == NAMED_MAX_COUNT + 1 and "pl_99" in sentence


def test_it_runs_unasked_and_again_after_a_crash() -> None:
    assert (get_payload.policy, get_payload.retry, get_payload.traits.scopes) == ("auto", "safe", ())
