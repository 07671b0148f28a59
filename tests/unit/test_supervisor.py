"""A supervisor over small programs that die, never become ready, or do not end."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from threadcast.console.serving import Many, half
from threadcast.process import supervisor
from threadcast.process.supervisor import supervise
from threadcast.settings import Settings
from threadcast.settings.sources import BadSettings

PROGRAM = """
import json, os, signal, sys
seat = json.loads(sys.argv[-1])
def ready():
    os.write(seat["word_fd"], b"small program is ready")
    os.close(seat["word_fd"])
"""
UNTIL_THE_LIFELINE_ENDS = "ready(); sys.stdin.read()"


def small(body: str) -> list[str]:
    return [sys.executable, "-S", "-c", PROGRAM + body]


def lives(path: Path) -> list[str]:
    """Return the lines that processes wrote: one line for each process that ran."""
    return path.read_text().splitlines() if path.exists() else []


def test_who_dies_is_started_again_until_that_is_of_no_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(supervisor, "PAUSES_SECONDS", (0.0, 0.01, 0.01))
    record = tmp_path / "lives"
    body = f"""
with open({str(record)!r}, "a") as record: print(seat["number"], file=record)
if seat["number"] == 2: ready(); sys.exit(3)
{UNTIL_THE_LIFELINE_ENDS}
"""
    assert supervise(Settings(), "worker", small(body), 2) == 1
    said = capfd.readouterr()
    assert "worker process 2 died 4 times in a row, the last time with exit status 3; the log shows" in said.err
    assert "small program is ready, 2 processes" in said.out
    assert sorted(lives(record)) == ["1", "2", "2", "2", "2"], "the other one was let be"
    told = [json.loads(line) for line in said.err.splitlines() if line.startswith("{")]
    born = [(line["number"], line["pid"]) for line in told if line["event"] == "process.started"]
    died = [line for line in told if line["event"] == "process.died"]
    assert [(line["number"], line["fate"]) for line in died] == [(2, "exit status 3")] * 3
    assert {(line["number"], line["pid"]) for line in died} <= set(born), "each can be found by the line of its start"


def test_who_cannot_even_start_for_a_while_is_tried_while_others_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A process cannot start, for instance, while the store is unreachable. The running processes recover by
    themselves, and must not end because a new process cannot start."""
    monkeypatch.setattr(supervisor, "PAUSES_SECONDS", (0.0, 0.01))
    record = tmp_path / "lives"
    body = f"""
with open({str(record)!r}, "a") as record: print(seat["number"], file=record)
count = open({str(record)!r}).read().split().count("2")
if seat["number"] == 2:
    if 1 < count < 7: sys.exit("no store")
    ready()
    if count == 1: sys.exit(3)
    os.kill(os.getppid(), signal.SIGTERM)
    sys.stdin.read()
{UNTIL_THE_LIFELINE_ENDS}
"""
    assert supervise(Settings(), "worker", small(body), 2) == 0
    assert sorted(lives(record)) == ["1"] + ["2"] * 7
    assert capfd.readouterr().err.count("no store") == 5


def test_who_lived_long_begins_a_new_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The process dies eight times. PAUSES_SECONDS has one number, so the second death in a row would end everything;
    but in this test every process counts as one that has run for long, so no two deaths are in a row."""
    monkeypatch.setattr(supervisor, "PAUSES_SECONDS", (0.0,))
    monkeypatch.setattr(supervisor, "STEADY_SECONDS", 0.0)
    record = tmp_path / "lives"
    body = f"""
with open({str(record)!r}, "a") as record: print(os.getpid(), file=record)
ready()
if len(open({str(record)!r}).readlines()) < 9: sys.exit(1)
os.kill(os.getppid(), signal.SIGTERM); sys.stdin.read()
"""
    assert supervise(Settings(), "worker", small(body), 1) == 0
    assert len(set(lives(record))) == 9
    assert "Traceback" not in capfd.readouterr().err


def test_who_never_gets_ready_ends_the_start_and_the_others(capfd: pytest.CaptureFixture[str]) -> None:
    body = f"if seat['number'] == 2: sys.exit('no store')\n{UNTIL_THE_LIFELINE_ENDS}"
    assert supervise(Settings(), "worker", small(body), 3) == 1
    said = capfd.readouterr()
    assert "no store" in said.err
    assert "threadcast: worker process 2 did not start (exit status 1); see its output above" in said.err
    assert said.out == ""


def test_who_does_not_stop_is_killed(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(supervisor, "STOP_SPARE_SECONDS", -4.8)  # five is the limit of `limits`
    body = "ready(); os.kill(os.getppid(), signal.SIGTERM)\nwhile True: signal.pause()"
    assert supervise(Settings(), "worker", small(body), 1) == 1
    assert "a process did not stop within 0.2 s and was killed" in capfd.readouterr().err


def test_a_second_signal_ends_all_at_once() -> None:
    """Run the supervisor in a process of its own, because it ends its process."""
    body = """
ready(); sys.stdin.read(); os.kill(os.getppid(), signal.SIGINT)
while True: signal.pause()
"""
    code = f"""
from threadcast.settings import Settings
from threadcast.process.supervisor import supervise
supervise(Settings(), "worker", {small(body)!r}, 1)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True) as harness:
        assert harness.stdout is not None
        assert b"is ready" in harness.stdout.readline()
        harness.send_signal(signal.SIGINT)
        assert harness.wait(30) == 128 + signal.SIGINT
        assert harness.stdout.read() == b"", "nobody has it any more"


def test_a_program_that_cannot_live_any_more_takes_nobodys_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The first process of each slot keeps running. The replacements that SIGHUP starts end at once, so the old
    processes keep running."""
    replace = supervisor._Crew._replace

    async def replace_and_stop(crew: supervisor._Crew) -> None:
        await replace(crew)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(supervisor._Crew, "_replace", replace_and_stop)
    record = tmp_path / "lives"
    body = f"""
with open({str(record)!r}, "a") as record: print(seat["number"], file=record)
if len(open({str(record)!r}).readlines()) > 2: sys.exit(1)
ready()
if len(open({str(record)!r}).readlines()) == 2: os.kill(os.getppid(), signal.SIGHUP)
sys.stdin.read()
"""
    assert supervise(Settings(), "worker", small(body), 2) == 0
    assert len(lives(record)) == 3
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "processes.not_replaced" in line]
    told = json.loads(line)
    assert told["kept"] == "worker process 1"
    assert "ended with exit status 1 before it was ready" in told["why"]


@pytest.mark.parametrize("total", [0, -1, 65])
def test_a_number_of_processes_that_makes_no_sense_is_refused(total: int) -> None:
    with pytest.raises(BadSettings, match=f"--processes {total} must be from 1 to 64; one for each core"):
        half("web", {"store.url": "redis://127.0.0.1:1"}, None, Many(total, None, []))


def test_where_the_kernel_does_not_spread_connections_web_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(BadSettings, match=r"--processes needs Linux, .* each with its own --port, behind a load bal"):
        half("web", {"store.url": "redis://127.0.0.1:1"}, None, Many(2, None, []))


def test_a_process_slot_that_no_supervisor_gave_is_refused() -> None:
    with pytest.raises(BadSettings, match=r"--seat is only for processes that --processes starts"):
        half("web", {"store.url": "redis://127.0.0.1:1"}, None, Many(1, "{}", []))
