"""Checks what the door of Responses promises beyond one answer: approvals, all of Unicode, takeovers, other callers'
ids."""

from pathlib import Path
from typing import Any

import anyio
import openai
import pytest

from tests.doors.dresponses.test_responses import client_of
from tests.support.fleet import FAST, fleet_on_new_store
from tests.support.server import serving
from tests.support.tokens import token_of, tokens
from tests.support.unicode import UNICODE_TEXTS

pytestmark = pytest.mark.anyio


async def test_an_approval_request_is_answered_and_the_run_goes_on(tmp_path: Path) -> None:
    async with serving(tmp_path, config='[tools.calculator]\npolicy = "ask"\n') as server, client_of(server) as client:
        asked = await client.responses.create(model="demo/tools?rate=0", input='call calculator {"expression":"6*7"}')
        request = next(item for item in asked.output if item.type == "mcp_approval_request")
        assert (request.name, request.arguments) == ("calculator", '{"expression":"6*7"}')
        with pytest.raises(openai.ConflictError):
            await client.responses.create(input="meanwhile", previous_response_id=asked.id)
        answer: Any = [{"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}]
        done = await client.responses.create(input=answer, previous_response_id=asked.id)
        call = next(item for item in done.output if item.type == "mcp_call")
        assert (call.name, call.output, call.status) == ("calculator", "42", "completed")
        assert (await client.responses.retrieve(done.id)).output == done.output


async def test_all_of_unicode_comes_back_and_is_retrieved(tmp_path: Path) -> None:
    async with serving(tmp_path) as server, client_of(server) as client:
        for text in UNICODE_TEXTS:
            async with client.responses.stream(model="demo/echo?rate=0", input=text) as stream:
                final = await stream.get_final_response()
            assert final.output_text == f"You said: {text}"
            assert (await client.responses.retrieve(final.id)).output_text == final.output_text


async def test_a_killed_worker_leaves_no_hole_in_the_numbers(tmp_path: Path) -> None:
    with fleet_on_new_store(tmp_path, limits=FAST) as fleet:
        await fleet.open()
        async with client_of(fleet.webs[0]) as client:
            seen: list[Any] = []
            stream = await client.responses.create(model="demo/essay?words=200&rate=100", input="x", stream=True)
            async for event in stream:
                seen.append(event)
                if len(seen) == 20:
                    with anyio.fail_after(30):
                        while not fleet.kill_owner(seen[0].response.conversation.id):
                            await anyio.sleep(0.01)
            assert [event.sequence_number for event in seen] == list(range(len(seen)))
            own_id = seen[0].response.id
            again = [event async for event in await client.responses.retrieve(own_id, stream=True, starting_after=-1)]
            rest = [event async for event in await client.responses.retrieve(own_id, stream=True, starting_after=30)]
    assert [event.model_dump() for event in again] == [event.model_dump() for event in seen]
    assert [event.model_dump() for event in rest] == [event.model_dump() for event in seen][31:]
    assert len(seen[-1].response.output_text.split()) >= 200


async def test_another_callers_response_is_404_like_one_that_never_existed(tmp_path: Path) -> None:
    async with serving(tmp_path, config=tokens(ann="", bob="")) as server, client_of(server) as client:
        ann, bob = (client.with_options(api_key=token_of(name)) for name in ("ann", "bob"))
        own = await ann.responses.create(model="demo/echo", input="x")
        assert own.conversation is not None
        unknown = own.id[:-4] + "0000"
        answers = []
        for name in (own.id, unknown):
            for call in (
                bob.responses.retrieve(name),
                bob.responses.cancel(name),
                bob.responses.delete(name),
                bob.responses.input_items.list(name),
                bob.responses.create(input="x", previous_response_id=name),
            ):
                with pytest.raises(openai.NotFoundError) as refused:
                    await call
                answers.append(refused.value.body)
        assert answers[:5] == answers[5:]
        for chat in (own.conversation.id, "conv_unknown"):
            with pytest.raises(openai.NotFoundError):
                await bob.responses.create(input="x", conversation=chat)
        assert (await ann.responses.retrieve(own.id)).output_text == "You said: x"
