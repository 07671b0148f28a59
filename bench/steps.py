"""Shows how the pause between appends, the load and the age of tokens follow steps in the number of chats.

One worker streams 50, 200 and 500 chats, and then 200 and 50 again, each at 50 tokens a second with one reader. Once a
second the program notes the worker's pause and load, the CPU shares of the processes, and the ages of the tokens of
that second. It draws all of it over time and prints the medians of the second half of each step, and how much the pause
varied there: a pause that oscillates would vary although the load is constant. An answer that ends is sent once more as
a whole, with its old tokens, so seconds in which answers ended have no age.

`python -m bench.steps --svg docs/steps.svg` runs it, in a minute and a half. It needs a machine that is otherwise idle.
"""

import argparse
import re
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

import anyio

from bench.figures import Figure, Section, figure, progress, table
from bench.lines import Line, Panel, lines
from bench.model_server import STAMP, ModelServer, model_server
from bench.processes import cpu_seconds
from bench.readers import Readers, opened_readers
from bench.tokens import ENDLESS, Running, post_all, running, wait_for

__all__ = ["Sample", "chart", "measure"]

WHOLE_MS = 5_000.0
"""The age from which a token belongs to the whole text of an answer that has ended."""

STEPS = (50, 200, 500, 200, 50)
STEP_SECONDS = 16
SAMPLE_SECONDS = 1.0


class Sample(NamedTuple):
    """One second. `busy` has the shares of a core of worker, web process and store; ages and the pause are in ms. The
    ages are None if answers ended in this second."""

    seconds: float
    step: int
    chats: int
    pause_ms: float
    load: float
    busy: dict[str, float]
    p50_ms: float | None
    p99_ms: float | None


def measure(steps: Sequence[int] = STEPS, step_seconds: float = STEP_SECONDS) -> list[Sample]:
    """Run the steps and return one sample for each second."""
    with tempfile.TemporaryDirectory() as directory, model_server() as models:
        port = _free_port()
        more = {"THREADCAST_SERVER__METRICS_PORT": str(port)}
        with (
            running(Path(directory), models.url, worker_environment=more) as server,
            opened_readers(
                server.url, "/v1/chats/subscribe?chat_id=chat-%d", "-m", str(max(steps)), "-t", STAMP
            ) as readers,
        ):
            readers.open(max(steps))
            samples = _run(server, models, readers, f"http://127.0.0.1:{port}/metrics", steps, step_seconds)
            models.stop_answers()
            wait_for(lambda: not models.streaming_count())
    progress("")
    return samples


def _run(
    server: Running, models: ModelServer, readers: Readers, metrics: str, steps: Sequence[int], step_seconds: float
) -> list[Sample]:
    samples: list[Sample] = []
    began = time.monotonic()
    count = 0
    for step, wanted in enumerate(steps):
        progress(f"steps: {wanted} chats")
        if wanted > count:
            models.answer_with(ENDLESS)
            anyio.run(post_all, server.url, [f"chat-{number}" for number in range(count, wanted)])
        else:
            models.keep_answers(wanted)
        count = wanted
        ends_at = time.monotonic() + step_seconds
        while time.monotonic() < ends_at:
            readers.reset()
            sample_began = time.monotonic()
            before = {name: cpu_seconds(pid) for name, pid in server.pids.items()}
            time.sleep(SAMPLE_SECONDS)
            seen, elapsed = readers.count(), time.monotonic() - sample_began
            busy = {name: (cpu_seconds(pid) - before[name]) / elapsed for name, pid in server.pids.items()}
            told = _gauges(metrics)
            pause_ms, load = 1_000 * told["append_pause_seconds"], told["worker_load"]
            is_whole = seen.max_us / 1_000 > WHOLE_MS
            ages = (None, None) if is_whole else (seen.p50_us / 1_000, seen.p99_us / 1_000)
            at = time.monotonic() - began
            samples.append(Sample(at, step, models.streaming_count(), pause_ms, load, busy, *ages))
    return samples


def _gauges(url: str) -> dict[str, float]:
    with urlopen(url, timeout=10) as answer:
        text = answer.read().decode()
    return {name: float(value) for name, value in re.findall(r"^threadcast_(\w+) (\S+)$", text, re.MULTILINE)}


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def chart(samples: Sequence[Sample]) -> str:
    """Return the SVG of the samples over time."""
    return lines(
        "Steps of 50, 200, 500, 200 and 50 chats at 50 tokens a second, one worker",
        [each.seconds for each in samples],
        [
            Panel("chats", [Line("streaming", [each.chats for each in samples])]),
            Panel("ms", [Line("pause", [each.pause_ms for each in samples])]),
            Panel(
                "%",
                [
                    Line("CPU, worker", [100 * each.busy["worker"] for each in samples]),
                    Line("load, worker", [100 * each.load for each in samples]),
                    Line("CPU, web", [100 * each.busy["web"] for each in samples]),
                ],
            ),
            Panel(
                "ms",
                [
                    Line("age p50", [each.p50_ms for each in samples]),
                    Line("age p99", [each.p99_ms for each in samples]),
                ],
            ),
        ],
    )


def _figures(samples: Sequence[Sample]) -> list[Figure]:
    figures: list[Figure] = []
    for step in range(samples[-1].step + 1):
        those = [each for each in samples if each.step == step]
        settled = those[len(those) // 2 :]
        what = f"step {step + 1}, {settled[-1].chats} chats"
        busy = ", ".join(
            f"{name} {statistics.median(each.busy[name] for each in settled):.0%}" for name in settled[0].busy
        )
        figures += [
            figure(f"pause{step}", f"{what}: pause", [each.pause_ms for each in settled], "ms", note=f"busy: {busy}"),
            figure(
                f"age{step}", f"{what}: age p50", [each.p50_ms for each in settled if each.p50_ms is not None], "ms"
            ),
        ]
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m bench.steps", description="Show how the pause between appends follows the load."
    )
    parser.add_argument("--svg", type=Path, help="the file to which the chart is written")
    parser.add_argument("--seconds", type=float, default=STEP_SECONDS, help="the length of a step")
    options = parser.parse_args()
    taken = measure(step_seconds=options.seconds)
    if options.svg is not None:
        options.svg.write_text(chart(taken))
    title = "pause and age after steps in the number of chats, in the second half of each step"
    print(table(Section(row="steps", title=title, command="python -m bench.steps", figures=_figures(taken))))
    sys.exit(0)
