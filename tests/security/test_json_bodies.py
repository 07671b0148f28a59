"""JSON that is made to be slow is refused before it is decoded. `scripts/bench bombs` measures how long the requests
take."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from tests.support.server import start
from threadcast.settings.limits import DEFAULT_LIMITS

pytestmark = [pytest.mark.anyio, pytest.mark.row("SEC-3")]

BOUND = 1_000


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx2.AsyncClient]:
    environment = {"THREADCAST_LIMITS__BODY_MAX_VALUES": str(BOUND)}
    with start("serve", "--memory", "--port", "0", log=tmp_path / "log", environment=environment) as server:
        await server.ready()
        async with httpx2.AsyncClient(base_url=server.url, timeout=60) as client:
            yield client


def message(context: str) -> str:
    return f'{{"type":"user_message","client_request_id":"r1","content":"hello","context":{context}}}'


async def posted(client: httpx2.AsyncClient, path: str, body: str) -> httpx2.Response:
    return await client.post(path, content=body, headers={"content-type": "application/json"})


MILLIONS = "[" + "[]," * 5_000_000 + "[]]"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        pytest.param("/v1/chats/c1/commands", message(f'{{"a":{MILLIONS}}}'), id="command"),
        pytest.param("/v1/chat/completions", f'{{"model":"demo","messages":{MILLIONS}}}', id="completions"),
        pytest.param("/v1/streams/s1", f'{{"add":{MILLIONS[: 3 * BOUND]}[]]}}', id="stream"),
    ],
)
async def test_a_body_with_too_many_values_is_refused_with_its_bound(
    client: httpx2.AsyncClient, path: str, body: str
) -> None:
    answer = await posted(client, path, body)
    assert answer.status_code == 413
    found = answer.json()
    told = found.get("detail") or found["error"]["message"]  # the one-shot endpoint's own error form
    assert "more than 1,000 values (limits.body_max_values)" in str(told)
    assert (await client.get("/livez")).status_code == 200


def export(*unknown: str) -> str:
    """Return an export of a chat with a message for each of these values of an unknown field."""
    header = (
        f'{{"type":"chat","format":1,"chat_id":"c1","leaf_id":null,"message_count":{len(unknown)},"payload_count":0,'
        '"agent_count":0,"thread":{}}\n'
    )
    return header + "".join(
        f'{{"type":"message","message":{{"message_id":"m{number}","role":"user","content":"x","unknown":{value}}}}}\n'
        for number, value in enumerate(unknown)
    )


async def test_a_line_of_an_import_with_too_many_values_is_refused_with_its_number(client: httpx2.AsyncClient) -> None:
    for values in (MILLIONS, MILLIONS[: 3 * BOUND] + "[]]"):
        answer = await posted(client, "/v1/chats/import", export("0", values))
        assert answer.status_code == 413
        assert "line 3 has more than 1,000 values (limits.body_max_values)" in answer.json()["detail"]
        assert answer.json()["path"] == "/3"
    text = '"' + "[{," * BOUND + '"'
    answer = await posted(client, "/v1/chats/import", export(text, *["[" + "0," * 100 + "0]"] * 20))
    assert answer.status_code == 200, "the bound is one of values, and of each line"
    assert answer.json()["imported"] == ["c1"]


async def test_a_body_may_have_just_so_many_values_and_those_in_its_texts_do_not_count(
    client: httpx2.AsyncClient,
) -> None:
    others = message('{"a":[]}').count(",") + message('{"a":[]}').count("[") + message('{"a":[]}').count("{")
    text = '"' + '[{,\\\\\\"' * 1_000 + '"'
    just = ",".join([text] + ["0"] * (BOUND - others))
    assert (await posted(client, "/v1/chats/c1/commands", message(f'{{"a":[{just}]}}'))).status_code == 202
    more = ",".join(["0"] * (BOUND - others + 2))
    assert (await posted(client, "/v1/chats/c2/commands", message(f'{{"a":[{more}]}}'))).status_code == 413


def test_a_restored_history_of_1000_messages_is_far_within_the_default() -> None:
    a_message = (
        '{"role":"assistant","content":[{"type":"text","text":""}],'
        '"tool_calls":[{"id":"","function":{"name":"","arguments":""}}]}'
    )
    count = 1_000 * sum(a_message.count(each) for each in ",[{")
    assert count < DEFAULT_LIMITS.body_max_values / 2
