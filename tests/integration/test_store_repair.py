"""Files of the embedded store after a power loss and worse, with the real server: chats are there again."""

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

from protocol.errors import Unavailable
from server.cli import main
from server.store.embedded import PERSISTENT, EmbeddedStore
from server.store.repair import DAMAGED, FILES, MANIFEST, Damaged
from server.store.server_process import find_binary, lock_is_free, start_server
from tests.integration.harness import command, start, user_message, watching
from tests.integration.store_fixtures import eventually

pytestmark = pytest.mark.anyio

LAST = b"*3\r\n$3\r\nSET\r\n$4\r\nlast\r\n$5\r\nthing\r\n"


class House:
    """A store with some keys in it; its server does not run."""

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
        """The keys after a start as `threadcast serve` does it, and what was said of repairs."""
        with capture_logs() as logs:
            async with EmbeddedStore(self.data_dir) as store:
                with redis.Redis.from_url(store.url, decode_responses=True) as client:
                    keys = {str(key) for key in client.scan_iter()}
        return keys, [line["text"] for line in logs if line["event"] == "store.repaired"]

    def kept(self) -> list[bytes]:
        place = self.directory / DAMAGED
        return [path.read_bytes() for path in sorted(place.iterdir())] if place.exists() else []


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path / "data")


@pytest.mark.parametrize(
    "junk",
    [bytes(1), bytes(5_000), random.Random(7).randbytes(5_000), b"*3\r\n$3\r\nSET\r\n", b"*9999999999\r\n", b"\r\n"],
    ids=["a zero", "zeros", "garbage", "a beginning", "a giant", "an empty line"],
)
async def test_what_stands_behind_the_last_record_is_cut_off_and_kept(house: House, junk: bytes) -> None:
    house.file.write_bytes(house.whole + junk)
    keys, said = await house.opened()
    assert keys == {"first", "log", "last"}
    assert len(said) == 1 and f"the {len(junk)} bytes after it are in {house.directory / DAMAGED}" in said[0]
    assert house.kept() == [junk]
    assert await house.opened() == (keys, []), "the next start has nothing to repair"


async def test_a_cut_at_every_byte_of_the_last_record_costs_that_record_alone(house: House) -> None:
    before = len(house.whole) - len(LAST)
    for at in range(before + 1, len(house.whole)):
        house.file.write_bytes(house.whole[:at])
        keys, said = await house.opened()
        assert (keys, len(said)) == ({"first", "log"}, 1), at
        assert house.whole[before:at] in house.kept()
        assert house.file.read_bytes() == house.whole[:before]
    house.file.write_bytes(house.whole[:before])
    assert await house.opened() == ({"first", "log"}, [])


async def test_half_of_a_transaction_is_none_of_it(house: House) -> None:
    with house.running() as client, client.pipeline(transaction=True) as both:
        both.set("one", "1")
        both.set("two", "2")
        both.execute()
    whole = house.file.read_bytes()
    begin = whole.index(b"*1\r\n$5\r\nMULTI", len(house.whole))
    for at in [begin + 15, whole.index(b"*3", begin), whole.rindex(b"*3"), whole.rindex(b"*1"), len(whole) - 1]:
        house.file.write_bytes(whole[:at])
        keys, said = await house.opened()
        assert keys == {"first", "log", "last"}
        assert len(said) == 1
        assert house.file.read_bytes() == whole[:begin]


def damage_in_the_middle(house: House) -> None:
    house.file.write_bytes(house.whole.replace(b"*3\r\n$3\r\nSET\r\n$5\r\nfirst", b"\0" * 25))


def zeros_in_the_base(house: House) -> None:
    house.base.write_bytes(bytes(house.base.stat().st_size))


def cut_in_the_base(house: House) -> None:
    os.truncate(house.base, house.base.stat().st_size - 3)


def zeros_in_the_manifest(house: House) -> None:
    (house.files / MANIFEST).write_bytes(bytes(88))


@pytest.mark.parametrize(
    ("damage", "saved"),
    [
        (damage_in_the_middle, set()),
        (zeros_in_the_base, {"first", "log", "last"}),
        (cut_in_the_base, {"first", "log", "last"}),
        (lambda house: house.base.unlink(), {"first", "log", "last"}),
        (zeros_in_the_manifest, {"first", "log", "last"}),
        (lambda house: (house.files / MANIFEST).unlink(), {"first", "log", "last"}),
        (lambda house: house.file.unlink(), set()),
    ],
    ids=["middle", "base of zeros", "base cut", "no base", "manifest of zeros", "no manifest", "no commands"],
)
async def test_worse_is_left_to_the_doctor_who_keeps_all_and_saves_what_can_be_saved(
    house: House, damage: Callable[[House], object], saved: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    damage(house)
    was = sorted(path.read_bytes() for path in house.files.iterdir() if path.stat().st_size)
    with pytest.raises(Damaged, match=rf"threadcast doctor --repair --data-dir {house.data_dir}"):
        await house.opened()
    assert sorted(path.read_bytes() for path in house.files.iterdir() if path.stat().st_size) == was, "left as it is"
    assert main(["doctor", "--repair", "--data-dir", str(house.data_dir)]) == 0
    assert capsys.readouterr().out.endswith("the store starts\n")
    assert await house.opened() == (saved, [])
    left = b"".join([*house.kept(), *(path.read_bytes() for path in house.files.iterdir())])
    assert all(data in left for data in was if len(data) < len(house.whole)), "nothing is thrown away"
    assert main(["doctor", "--repair", "--data-dir", str(house.data_dir)]) == 0
    assert "are whole" in capsys.readouterr().out


async def test_a_blob_that_holds_records_and_is_torn_is_a_bad_end_like_any_other(house: House) -> None:
    with house.running() as client:
        client.hset("blob", mapping={"m": "text/plain", "d": b"\r\n*1\r\n$4\r\nPING\r\n" + LAST + b"x" * 5_000})
    torn = house.file.read_bytes()[:-4_000] + bytes(8_000)
    house.file.write_bytes(torn)
    keys, said = await house.opened()
    assert (keys, len(said)) == ({"first", "log", "last"}, 1)
    assert house.file.read_bytes() + house.kept()[0] == torn


async def test_after_a_snapshot_of_commands_that_is_damaged_nothing_newer_is_loaded(house: House) -> None:
    base = house.files / "appendonly.aof.1.base.aof"
    start, middle = LAST.replace(b"$4\r\nlast", b"$3\r\nold"), LAST.replace(b"$4\r\nlast", b"$4\r\nlost")
    base.write_bytes(start + bytes(30) + middle)
    manifest = (house.files / MANIFEST).read_text()
    (house.files / MANIFEST).write_text(manifest.replace(house.base.name, base.name))
    house.base.unlink()
    assert main(["doctor", "--repair", "--data-dir", str(house.data_dir)]) == 0
    assert await house.opened() == ({"old"}, [])
    assert bytes(30) + middle in house.kept() and house.whole in house.kept()


async def test_the_doctor_keeps_away_from_a_store_that_runs(house: House, capsys: pytest.CaptureFixture[str]) -> None:
    async with EmbeddedStore(house.data_dir):
        assert main(["doctor", "--repair", "--data-dir", str(house.data_dir)]) == 1
    assert "is already served" in capsys.readouterr().err
    assert main(["doctor", "--repair", "--data-dir", str(house.data_dir / "none")]) == 1
    assert "there is no store in" in capsys.readouterr().err


async def test_what_is_not_damage_is_said_as_it_is(house: House) -> None:
    (house.directory / "store.log").unlink()
    (house.directory / "store.log").mkdir()
    with pytest.raises(Unavailable) as raised:
        await house.opened()
    assert not isinstance(raised.value, Damaged)
    assert house.kept() == []


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
    await eventually(partial(_is_free, data_dir / "store"))  # its store writes out what it has, and ends
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
