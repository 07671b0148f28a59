"""Quotas over real HTTP: commands that begin a run are counted across web processes, and refused before they are
stored."""

from pathlib import Path

import httpx2
import pytest
import redis

from tests.integration.oneshot_client import PATHS, body_for
from tests.integration.store_fixtures import fresh_url
from tests.support.fleet import running_fleet
from tests.support.server import command, user_message
from tests.support.tokens import bearer, tokens
from threadcast.store.embedded.server_process import ServerProcess

pytestmark = pytest.mark.anyio

CONFIG = """
[limits]
turns_per_hour = 3
""" + tokens(ann="", bob="turns_per_hour = 0\nturns_per_day = 1", eve='permissions = ["metrics"]')


@pytest.mark.row("AUTH-4")
async def test_a_caller_over_quota_is_refused_in_every_process_and_nothing_is_kept(
    tmp_path: Path, valkey_server: ServerProcess
) -> None:
    config, store_url = tmp_path / "threadcast.toml", fresh_url(valkey_server)
    config.write_text(CONFIG)
    with (
        running_fleet(tmp_path, store_url, "--config", str(config)) as fleet,
        redis.Redis.from_url(store_url) as store,
    ):
        one, two = await fleet.add_web(), await fleet.add_web()
        ann = bearer("ann")
        assert (await command(one.url, "c1", user_message("a", "x"), ann)).status_code == 202
        assert (await command(two.url, "c2", user_message("a", "x"), ann)).status_code == 202
        again = await command(two.url, "c1", user_message("a", "x"), ann)
        assert (again.status_code, again.json()["status"]) == (200, "duplicate")
        mismatch = await command(two.url, "c1", user_message("a", "other words"), ann)
        assert mismatch.status_code == 409
        wrong = await command(one.url, "c1", {"type": "user_message", "client_request_id": "w", "content": ""}, ann)
        assert wrong.status_code == 400
        free = {"type": "set_params", "client_request_id": "p", "patch": {"temperature": 0.5}}
        assert (await command(one.url, "c1", free, ann)).status_code == 202
        unknown = {"type": "regenerate", "client_request_id": "u"}
        assert (await command(one.url, "unknown", unknown, ann)).status_code == 404
        assert (await command(one.url, "c1", {"type": "regenerate", "client_request_id": "b"}, ann)).status_code == 202

        keys = set(store.keys("*"))
        for url in (one.url, two.url):
            refused = await command(url, "c3", user_message("c", "x"), ann)
            assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
            assert 3_500 < int(refused.headers["retry-after"]) <= 3_600
            assert "3 in an hour" in refused.json()["detail"]
        async with httpx2.AsyncClient() as client:
            for path in PATHS:
                oneshot = await client.post(one.url + path, json=body_for(path, "x"), headers=ann)
                told = oneshot.json().get("error")
                told = told if isinstance(told, dict) else oneshot.json()  # OpenAI's form, or Threadcast's
                assert (oneshot.status_code, told["code"]) == (429, "rate_limited"), path
            assert set(store.keys("*")) == keys, "nothing was stored"
            known = await command(two.url, "c2", user_message("a", "x"), ann)
            assert known.status_code == 200, "who asks again about a command that was kept is told so"
            metrics = (await client.get(one.url + "/metrics", headers=bearer("eve"))).text
        assert "threadcast_turns_refused_total 5.0" in metrics

        assert (await command(one.url, "c4", user_message("a", "x"), bearer("bob"))).status_code == 202
        late = await command(two.url, "c4", user_message("b", "x"), bearer("bob"))
        assert late.status_code == 429 and int(late.headers["retry-after"]) > 86_000
