"""Files of the embedded store after a power loss or worse damage, with the real server: the chats can be read again."""

import contextlib
import json
import os
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import redis
from structlog.testing import capture_logs

from tests.integration.store_fixtures import eventually
from tests.support.reader import watching
from tests.support.server import command, start, user_message
from threadcast.cli import main
from threadcast.store.embedded.embedded import PERSISTENT, EmbeddedStore
from threadcast.store.embedded.repair import DAMAGED, FILES, MANIFEST, Damaged
from threadcast.store.embedded.server_process import find_binary, lock_is_free, start_server
from threadcast_protocol.wire.errors import Unavailable

pytestmark = pytest.mark.anyio

LAST = b"*3\r\n$3\r\nSET\r\n$4\r\nlast\r\n$5\r\nthing\r\n"


class Harness:
    """The files of a store that holds some keys; no server runs on them."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.directory = data_dir / "store"
        self.files = self.directory / FILES
        with self.running() as client:
            client.set("first", "thing")
            client.xadd("log", {"entry": "one"})
            client.set("last", "thing")
        self.file = self.files / "appendonly.aof.1.incr.aof"
        self.base = self.files / "appendonly.aof.1.base.rdb"
        self.whole = self.file.read_bytes()
        assert self.whole.endswith(LAST)

    @contextlib.contextmanager
    def running(self) -> Iterator["redis.Redis"]:
        server = start_server(find_binary(), self.directory, PERSISTENT)
        try:
            server.wait_ready_blocking()
            with redis.Redis.from_url(server.url, decode_responses=True) as client:
                yield client
        finally:
            server.stop_blocking()

    async def opened(self) -> tuple[set[str], list[str]]:
        """Start the store as `threadcast serve` does, and return its keys and the reports of repairs."""
        with capture_logs() as logs:
            async with EmbeddedStore(self.data_dir) as store:
                with redis.Redis.from_url(store.url, decode_responses=True) as client:
                    keys = {str(key) for key in client.scan_iter()}
        return keys, [line["text"] for line in logs if line["event"] == "store.repaired"]

    def kept(self) -> list[bytes]:
        place = self.directory / DAMAGED
        return [path.read_bytes() for path in sorted(place.iterdir())] if place.exists() else []


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path / "data")


@pytest.mark.parametrize(
    "junk",
    [bytes(1), bytes(5_000), random.Random(7).randbytes(5_000), b"*3\r\n$3\r\nSET\r\n", b"*9999999999\r\n", b"\r\n"],
    ids=["a zero", "zeros", "garbage", "a beginning", "a giant", "an empty line"],
)
async def test_what_stands_behind_the_last_record_is_cut_off_and_kept(harness: Harness, junk: bytes) -> None:
    harness.file.write_bytes(harness.whole + junk)
    keys, said = await harness.opened()
    assert keys == {"first", "log", "last"}
    assert len(said) == 1 and f"the {len(junk)} bytes after it are in {harness.directory / DAMAGED}" in said[0]
    assert harness.kept() == [junk]
    assert await harness.opened() == (keys, []), "the next start has nothing to repair"


async def test_a_cut_at_every_byte_of_the_last_record_costs_that_record_alone(harness: Harness) -> None:
    before = len(harness.whole) - len(LAST)
    for at in range(before + 1, len(harness.whole)):
        harness.file.write_bytes(harness.whole[:at])
        keys, said = await harness.opened()
        assert (keys, len(said)) == ({"first", "log"}, 1), at
        assert harness.whole[before:at] in harness.kept()
        assert harness.file.read_bytes() == harness.whole[:before]
    harness.file.write_bytes(harness.whole[:before])
    assert await harness.opened() == ({"first", "log"}, [])


async def test_half_of_a_transaction_is_none_of_it(harness: Harness) -> None:
    with harness.running() as client, client.pipeline(transaction=True) as both:
        both.set("one", "1")
        both.set("two", "2")
        both.execute()
    whole = harness.file.read_bytes()
    begin = whole.index(b"*1\r\n$5\r\nMULTI", len(harness.whole))
    for at in [begin + 15, whole.index(b"*3", begin), whole.rindex(b"*3"), whole.rindex(b"*1"), len(whole) - 1]:
        harness.file.write_bytes(whole[:at])
        keys, said = await harness.opened()
        assert keys == {"first", "log", "last"}
        assert len(said) == 1
        assert harness.file.read_bytes() == whole[:begin]


def damage_in_the_middle(harness: Harness) -> None:
    harness.file.write_bytes(harness.whole.replace(b"*3\r\n$3\r\nSET\r\n$5\r\nfirst", b"\0" * 25))


def zeros_in_the_base(harness: Harness) -> None:
    harness.base.write_bytes(bytes(harness.base.stat().st_size))


def cut_in_the_base(harness: Harness) -> None:
    os.truncate(harness.base, harness.base.stat().st_size - 3)


def zeros_in_the_manifest(harness: Harness) -> None:
    (harness.files / MANIFEST).write_bytes(bytes(88))


@pytest.mark.parametrize(
    ("damage", "saved"),
    [
        (damage_in_the_middle, set()),
        (zeros_in_the_base, {"first", "log", "last"}),
        (cut_in_the_base, {"first", "log", "last"}),
        (lambda harness: harness.base.unlink(), {"first", "log", "last"}),
        (zeros_in_the_manifest, {"first", "log", "last"}),
        (lambda harness: (harness.files / MANIFEST).unlink(), {"first", "log", "last"}),
        (lambda harness: harness.file.unlink(), set()),
    ],
    ids=["middle", "base of zeros", "base cut", "no base", "manifest of zeros", "no manifest", "no commands"],
)
async def test_worse_is_left_to_the_doctor_who_keeps_all_and_saves_what_can_be_saved(
    harness: Harness, damage: Callable[[Harness], object], saved: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    damage(harness)
    was = sorted(path.read_bytes() for path in harness.files.iterdir() if path.stat().st_size)
    with pytest.raises(Damaged, match=rf"threadcast doctor --repair --data-dir {harness.data_dir}"):
        await harness.opened()
    assert sorted(path.read_bytes() for path in harness.files.iterdir() if path.stat().st_size) == was, "left as it is"
    assert main(["doctor", "--repair", "--data-dir", str(harness.data_dir)]) == 0
    assert capsys.readouterr().out.endswith("the store starts\n")
    assert await harness.opened() == (saved, [])
    left = b"".join([*harness.kept(), *(path.read_bytes() for path in harness.files.iterdir())])
    assert all(data in left for data in was if len(data) < len(harness.whole)), "nothing is thrown away"
    assert main(["doctor", "--repair", "--data-dir", str(harness.data_dir)]) == 0
    assert "are undamaged" in capsys.readouterr().out


async def test_a_blob_that_holds_records_and_is_torn_is_a_bad_end_like_any_other(harness: Harness) -> None:
    with harness.running() as client:
        client.hset("blob", mapping={"m": "text/plain", "d": b"\r\n*1\r\n$4\r\nPING\r\n" + LAST + b"x" * 5_000})
    torn = harness.file.read_bytes()[:-4_000] + bytes(8_000)
    harness.file.write_bytes(torn)
    keys, said = await harness.opened()
    assert (keys, len(said)) == ({"first", "log", "last"}, 1)
    assert harness.file.read_bytes() + harness.kept()[0] == torn


async def test_after_a_snapshot_of_commands_that_is_damaged_nothing_newer_is_loaded(harness: Harness) -> None:
    base = harness.files / "appendonly.aof.1.base.aof"
    start, middle = LAST.replace(b"$4\r\nlast", b"$3\r\nold"), LAST.replace(b"$4\r\nlast", b"$4\r\nlost")
    base.write_bytes(start + bytes(30) + middle)
    manifest = (harness.files / MANIFEST).read_text()
    (harness.files / MANIFEST).write_text(manifest.replace(harness.base.name, base.name))
    harness.base.unlink()
    assert main(["doctor", "--repair", "--data-dir", str(harness.data_dir)]) == 0
    assert await harness.opened() == ({"old"}, [])
    assert bytes(30) + middle in harness.kept() and harness.whole in harness.kept()


async def test_the_doctor_keeps_away_from_a_store_that_runs(
    harness: Harness, capsys: pytest.CaptureFixture[str]
) -> None:
    async with EmbeddedStore(harness.data_dir):
        assert main(["doctor", "--repair", "--data-dir", str(harness.data_dir)]) == 1
    assert "is already served" in capsys.readouterr().err
    assert main(["doctor", "--repair", "--data-dir", str(harness.data_dir / "none")]) == 1
    assert "there is no store in" in capsys.readouterr().err


async def test_what_is_not_damage_is_said_as_it_is(harness: Harness) -> None:
    (harness.directory / "store.log").unlink()
    (harness.directory / "store.log").mkdir()
    with pytest.raises(Unavailable) as raised:
        await harness.opened()
    assert not isinstance(raised.value, Damaged)
    assert harness.kept() == []


async def _is_free(directory: Path) -> bool:
    return lock_is_free(directory)


async def test_chats_are_there_again_after_zeros_behind_the_last_record(tmp_path: Path) -> None:
    data_dir, log = tmp_path / "data", tmp_path / "log"
    arguments = ["serve", "--port", "0", "--data-dir", str(data_dir)]
    with start(*arguments, log=log) as server:
        await server.ready()
        async with watching(server.url, "c1") as watcher:
            await command(server.url, "c1", user_message("a", "hello"))
            await watcher.at_rest()
            messages = watcher.messages
        server.kill()
    await eventually(partial(_is_free, data_dir / "store"))  # the store writes its data to disk, and ends
    (file,) = (data_dir / "store" / FILES).glob("*.incr.aof")
    with file.open("ab") as end:
        end.write(bytes(4_096))
    with start(*arguments, log=log) as server:
        await server.ready()
        async with watching(server.url, "c1") as watcher:
            assert watcher.messages == messages
        lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
        (repaired,) = [line for line in lines if line["event"] == "store.repaired"]
        assert repaired["cut_bytes"] == 4_096
        assert Path(repaired["copy"]).read_bytes() == bytes(4_096)
