"""Two people for one call: the requester cannot approve it, and the approver can read only the question."""

import os
import subprocess
import sys
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.security.test_approvals import APP, MODELS, decide, is_paused, question, refusals, results
from tests.support.reader import watching
from tests.support.server import Process, command, serving, user_message
from tests.support.tokens import bearer, token_of, tokens
from threadcast.settings.sources import BadSettings, load_settings
from threadcast.wiring.components import build_components
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio

ANN, BOB, EVE = bearer("ann"), bearer("bob"), bearer("eve")

CALLERS = tokens(ann="", bob='approves_for = ["ann"]', eve="")

CONFIG = MODELS + '[tools.pay]\napprover = "another"\n[tools.open_safe]\napprover = "another"\n' + CALLERS

PAY = 'call pay {"amount":5}'


async def answers(server: Process, chat_id: str, reason: JsonObject, who: dict[str, str], **more: object) -> JsonObject:
    body = {"tool_call_id": reason["tool_call_id"], "input_hash": reason["input_hash"], "accepted": True, **more}
    async with httpx2.AsyncClient(base_url=server.url) as client:
        answer = await client.post(f"/v1/chats/{chat_id}/questions", json=body, headers=who)
    return {"status_code": answer.status_code, **answer.json()}


async def questions(server: Process, chat_id: str, who: dict[str, str]) -> JsonObject:
    async with httpx2.AsyncClient(base_url=server.url) as client:
        answer = await client.get(f"/v1/chats/{chat_id}/questions", headers=who)
    return {"status_code": answer.status_code, **answer.json()}


@pytest.mark.row("SEC-8")
async def test_the_requester_of_a_call_cannot_approve_it_and_the_approver_can(tmp_path: Path) -> None:
    async with serving(tmp_path, config=CONFIG, app=APP) as server, watching(server.url, "c1", headers=ANN) as tab:
        patch = {"autonomous_no_confirm": True, "auto_approve_dangerous_commands": True}
        await command(server.url, "c1", {"type": "set_params", "client_request_id": "p", "patch": patch}, ANN)
        await command(server.url, "c1", user_message("a", PAY), ANN)
        await tab.until(is_paused)
        reason = question(tab)
        assert (reason["approver"], reason["once"]) == ("another", True)
        await decide(server, tab, "own", ANN, input_hash=reason["input_hash"])
        await tab.until(lambda tab: refusals(tab) == ["other_approver_needed"])
        own = await answers(server, "c1", reason, ANN)
        assert (own["status"], own["result"]["code"]) == ("refused", "other_approver_needed")
        assert is_paused(tab)
        (seen,) = (await questions(server, "c1", BOB))["questions"]
        assert seen["input"] == {"amount": 5}
        changed = await answers(server, "c1", {**seen, "input_hash": "0" * 32}, BOB)
        assert (changed["status"], changed["result"]["code"]) == ("refused", "conflict")
        assert (await answers(server, "c1", seen, BOB))["status"] == "applied"
        await tab.at_rest()
        assert results(tab) == ["paid 5"]
        # The approval was for one call.
        await command(server.url, "c1", user_message("b", PAY), ANN)
        await tab.until(lambda tab: is_paused(tab) and question(tab) != reason)


async def test_an_approver_gets_the_question_and_nothing_else_and_others_get_nothing(tmp_path: Path) -> None:
    config = CONFIG.replace('[tools.pay]\napprover = "another"\n', "")
    async with serving(tmp_path, config=config, app=APP) as server, watching(server.url, "c1", headers=ANN) as tab:
        await command(server.url, "c1", user_message("a", f'{PAY}\ncall open_safe {{"code":"4711"}}'), ANN)
        await tab.until(is_paused)
        (mine, hidden) = (await questions(server, "c1", ANN))["questions"]
        assert (await questions(server, "c1", BOB))["questions"] == [hidden]
        assert hidden["input"] == {"code": "4711"}
        unknown = await questions(server, "c2", EVE)
        assert unknown["status_code"] == 404
        assert await questions(server, "c1", EVE) == unknown
        assert await answers(server, "c1", hidden, EVE) == unknown
        assert (await answers(server, "c1", mine, BOB))["result"]["code"] == "no_pending_decision"
        async with httpx2.AsyncClient(base_url=server.url, headers=BOB) as bob:
            for path in ("c1", "c1/approvals", "c1/params", "c1/export"):
                assert (await bob.get(f"/v1/chats/{path}")).status_code == 404, path
        decision = {"type": "tool_decision", "tool_call_id": hidden["tool_call_id"], "accepted": True}
        for more in ({}, {"edited_input": {"code": "0000"}}, {"note": "obey me"}):
            body = {**decision, "client_request_id": "d", "input_hash": hidden["input_hash"], **more}
            assert (await command(server.url, "c1", body, BOB)).status_code == 404
        assert (await command(server.url, "c1", user_message("x", "obey me"), BOB)).status_code in (404, 409)
        assert len((await questions(server, "c1", ANN))["questions"]) == 2


async def test_the_requester_of_a_sub_chat_is_the_person_at_the_root(tmp_path: Path) -> None:
    async with serving(tmp_path, config=CONFIG, app=APP) as server, watching(server.url, "c1", headers=ANN) as tab:
        await command(server.url, "c1", user_message("a", 'call delegate {"task":"call pay {\\"amount\\":5}"}'), ANN)
        await tab.until(lambda tab: any(frame["type"] == "subchat_update" for frame in tab.frames))
        child = next(frame for frame in tab.frames if frame["type"] == "subchat_update")["subchat_id"]
        async with watching(server.url, child, headers=ANN) as inner:
            await inner.until(is_paused)
            assert inner.state is not None
            (reason,) = inner.state.runtime.pause_reasons
            body = {"tool_call_id": reason.tool_call_id, "input_hash": reason.input_hash}
            own = await answers(server, child, body, ANN)
            assert (own["status"], own["result"]["code"]) == ("refused", "other_approver_needed")
            assert (await answers(server, child, body, BOB))["status"] == "applied"
            await inner.at_rest()
        await tab.at_rest()
        assert "paid 5" in results(tab)[0]


async def test_the_approver_answers_in_the_terminal(tmp_path: Path) -> None:
    async with serving(tmp_path, config=CONFIG, app=APP) as server, watching(server.url, "c1", headers=ANN) as tab:
        await command(server.url, "c1", user_message("a", PAY), ANN)
        await tab.until(is_paused)
        for who, line, said in (
            ("eve", "y\n", "no such chat, or this token does not approve for its owner"),
            ("ann", "y\n", "needs the approval of another person"),
            ("bob", "", "the question stays open"),
            ("bob", "what?\ny\n", 'pay {"amount":5}\nallow this call? y or n: allow this call? y or n: allowed'),
            ("bob", "y\n", "no question waits"),
        ):
            done = await anyio.run_process(
                [sys.executable, "-m", "threadcast.cli", "approve", "c1", "--url", server.url],
                input=line.encode(),
                stderr=subprocess.STDOUT,
                env={**os.environ, "THREADCAST_TOKEN": token_of(who)},
                check=False,
            )
            assert said in done.stdout.decode(), who
        await tab.at_rest()
        assert results(tab) == ["paid 5"]


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (MODELS + '[tools.pay]\napprover = "another"\n', "nobody could approve"),
        (CONFIG + '[tools.read_page]\napprover = "another"\n', "needs the policy 'ask'"),
        (MODELS + tokens(bob='permissions = []\napproves_for = ["ann"]'), "not the permission approve"),
        (MODELS + tokens(bob='approves_for = ["bob"]'), "cannot approve for itself"),
    ],
)
def test_settings_with_which_nobody_would_be_asked_stop_the_start(tmp_path: Path, config: str, sentence: str) -> None:
    file = tmp_path / "threadcast.toml"
    file.write_text(f'[server]\napp = "{APP}"\n{config}')
    with pytest.raises((ValueError, BadSettings), match=sentence):
        build_components(load_settings({}, file=str(file)).settings)
