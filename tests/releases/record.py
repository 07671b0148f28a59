"""`python -m tests.releases.record`: record this release's logs, to be folded by every later one.

Starts a store, a web process and workers as an operator would, plays the conformance transcripts and additional scenes
(processes, agents, hidden and remembered things, a killed owner), and writes one file per chat into
`tests/releases/<version>/`, straight from the store. Run the program once, just before a release. The files of a
published release are never written again, and an existing name is refused. Until a version is published, `--again`
renews its files.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path

import anyio
import httpx2

from tests.releases.recording import DIRECTORY, recorded_from, write
from tests.support.fleet import Fleet, fleet_on_new_store
from tests.support.reader import Watcher, watching
from tests.support.server import Process, command, user_message
from threadcast.console.conformance.player import play
from threadcast.console.conformance.target import Target
from threadcast.console.conformance.transcripts import load, transcripts_directory
from threadcast.store.redis.store import RedisStore
from threadcast_protocol.wire.messages import JsonObject

APP = Path(__file__).with_name("record_tools.py")

CONFIG = """
[models]
default = "demo/echo"

[tools.open_file]
policy = "client"
description = "Opens a file in the editor."

[profiles.agent]
payloads = ["article"]

[profiles.short]
summarizer = "demo/echo?rate=0"
params = { max_history_messages = 2 }

[profiles.unsummed]
summarizer = "demo/error?code=llm_error"
params = { max_history_messages = 2 }
"""

TOOLS = "demo/tools?rate=0"

SCENES: dict[str, list[tuple[str, JsonObject]]] = {
    "process-with-wake": [('call run_process {"command":"echo done","wake":true}', {"model": TOOLS})],
    "process-that-ends-in-the-run": [
        ('call run_process {"command":"echo done","wake":true}', {"model": "demo/tools?rate=10"})
    ],
    "delegate": [('call delegate {"task":"say what you can do"}', {"model": TOOLS})],
    "agent-in-the-background": [('call start_agent {"task":"say what you can do","wake":true}', {"model": TOOLS})],
    "browser-events": [("call passes_on {}", {"model": TOOLS})],
    "memory": [('call remembers {"value":"y"}', {"model": TOOLS})],
    "hidden-arguments": [('call hides {"secret":"s"}', {"model": TOOLS})],
    "withheld-result": [("call withholds {}", {"model": TOOLS})],
    "reasoning-in-the-log": [("think", {"model": "demo/reasoning?words=10&rate=0", "reasoning": "log"})],
    "summarized": [(text, {"model": "demo/echo?rate=0"}) for text in "abcd"],
    "summary-failed": [(text, {"model": "demo/echo?rate=0"}) for text in "abcd"],
    "payload-in-the-text": [('Here it is.\nARTICLE: {"title": "Moss"}', {"model": "demo/echo?rate=0"})],
    "long-answer": [("write", {"model": "demo/essay?words=150&rate=200"})],
}
"""Maps a name to the messages of one chat, each with its parameters, each in a separate run."""


MODES = {"summarized": "short", "summary-failed": "unsummed"}
"""Maps scenes to their profiles, if their chat does not have the default profile."""

LARGE_BYTES = 200_000
"""Maximum size of a log. Larger logs come from tests of limits, say nothing more about the format, and would only fill
the repository."""


class _Recorder(Target):
    """A target that records each chat just before the chat is deleted; `transcript` names the file."""

    def __init__(self, url: str, store: RedisStore, release: str) -> None:
        super().__init__(url)
        self.transcript = ""
        self._store = store
        self._release = release
        self._taken: set[str] = set()

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        wait_seconds: float | None = None,
    ) -> httpx2.Response:
        parts = path.strip("/").split("/")
        if method == "DELETE" and len(parts) == 3:
            await self.keep(parts[2], self.transcript)
        return await super().request(method, path, body=body, headers=headers, wait_seconds=wait_seconds)

    async def keep(self, chat_id: str, name: str) -> None:
        """Store the chat if it exists, is not very large and has not been stored yet."""
        entries = await self._store.read_log(chat_id)
        size = sum(len(entry.events) + len(entry.facts) for entry in entries)
        if not entries or chat_id in self._taken or size > LARGE_BYTES:
            return
        self._taken.add(chat_id)
        path = DIRECTORY / self._release / f"{name}.json"
        number = 2
        while path.exists():
            path, number = path.with_name(f"{name}-{number}.json"), number + 1
        write(path, recorded_from(chat_id, self._release, entries))


async def _record(release: str) -> None:
    (DIRECTORY / release).mkdir()
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        config = Path(directory) / "threadcast.toml"
        config.write_text(CONFIG)
        options = ["--config", str(config), "--app", str(APP)]
        fleet = stack.enter_context(fleet_on_new_store(Path(directory), *options))
        web = await fleet.add_web()
        await fleet.add_worker()
        async with RedisStore(fleet.store.url) as store, _Recorder(web.url, store, release) as recorder:
            await recorder.look()
            for transcript in load(transcripts_directory()):
                recorder.transcript = transcript.name
                result = await play(recorder, transcript)
                if result.outcome != "passed":
                    raise SystemExit(f"{transcript.name}: {result.outcome}: {'; '.join(result.reasons)}")
            for name, messages in SCENES.items():
                await _play(web, name, messages)
                await _keep_tree(recorder, web, name)
            await _kill_owner(fleet, web)
            await recorder.keep("outcome-unknown", "outcome-unknown")


async def _play(web: Process, name: str, messages: list[tuple[str, JsonObject]]) -> None:
    async with watching(web.url, name) as chat:
        if name in MODES:
            body = {"type": "set_params", "client_request_id": "mode", "patch": {"mode": MODES[name]}}
            await command(web.url, name, body, {"Prefer": "wait=10"})
        for number, (text, params) in enumerate(messages, start=1):
            answer = await command(web.url, name, user_message(f"m{number}", text, params=params))
            if answer.status_code != 202:
                raise SystemExit(f"{name}: {answer.text}")
            await chat.at_rest(number)
        if "wake" in json.dumps(messages):
            await chat.until(lambda w: w.runs_ended > len(messages) and w.state is not None and w.state.is_at_rest)


async def _keep_tree(recorder: _Recorder, web: Process, name: str) -> None:
    """Store the chat, and the chats that its tools began."""
    async with httpx2.AsyncClient() as client:
        below = (await client.get(f"{web.url}/v1/chats", params={"parent_id": name})).json()["items"]
    await recorder.keep(name, name)
    for number, child in enumerate(below, start=1):
        await recorder.keep(child["id"], f"{name}-child-{number}")


async def _kill_owner(fleet: Fleet, web: Process) -> None:
    """Kill the owner with kill -9 while a background process and a tool that must not run twice are running."""
    name = "outcome-unknown"
    async with watching(web.url, name) as chat:
        await command(
            web.url, name, user_message("m1", 'call run_process {"command":"sleep 600"}', params={"model": TOOLS})
        )
        await chat.at_rest()
        await command(web.url, name, user_message("m2", "call never_twice {}", params={"model": TOOLS}))
        await chat.until(_tool_runs)
        await fleet.add_worker()
        assert fleet.kill_owner(name)
        await chat.at_rest(2)


def _tool_runs(watcher: Watcher) -> bool:
    """Return whether the second call has begun; the first call started the background process."""
    begun = [frame for frame in watcher.frames if frame["type"] == "tool_status" and frame["status"] == "running"]
    return len(begun) == 2


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.releases.record", description="Record this release's logs.")
    parser.add_argument("--again", action="store_true", help="the version is not out yet: write its files anew")
    options = parser.parse_args()
    release = version("threadcast")
    directory = DIRECTORY / release
    if directory.exists():
        if not options.again:
            sys.exit(
                f"{directory} is there: a release is recorded once; raise the version, or --again before it is out"
            )
        shutil.rmtree(directory)
    anyio.run(_record, release)
    files = sorted(directory.glob("*.json"))
    print(f"{len(files)} chats, {sum(file.stat().st_size for file in files) // 1_000} kB in {directory}")


if __name__ == "__main__":
    main()
