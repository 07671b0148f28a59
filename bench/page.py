"""Measures the page in a real Chromium: the time to open a long chat, the frames while an answer streams, and the
download sizes.

The page itself marks when a snapshot arrived and when it was painted (`performance.mark`). Frames are counted by
`requestAnimationFrame` while an answer in Markdown streams at 300 words a second. The CPU time of the tab's main thread
is measured, too, because the noise of the machine changes it less. To repeat: `python -m bench.page [--small]`; it
needs a Chromium and the built page (`scripts/web build`).
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser, BrowserContext, Page
from tests.browser.chromium import launched_chromium
from tests.browser.harness import Harness
from tests.web.sizes import (
    CLIENT_MAX_BYTES,
    PAGE_MAX_BYTES,
    client_bytes,
    first_files,
    opened_files,
    packed_bytes,
    page_files,
)

from bench.figures import Figure, Section, figure, progress, table
from threadcast.api.page import STATIC
from threadcast.chat.exports import ChatExport, export_lines
from threadcast_protocol.wire.messages import Message
from threadcast_protocol.wire.thread import ThreadChanges

__all__ = ["measure"]

OPEN_MAX_MS = 300.0
FRAMES_MIN = 56.0
"""The limits for a chat of `LENGTH` messages and `RATE` words a second."""

LENGTH = 2_000
RATE = 300

SECONDS = 8
"""The duration of streaming in each repetition."""

DEADLINE_MS = 60_000
"""Time limit of a step that takes a second on a quiet machine."""

ANSWER = """\
A lease is a promise **with an end**: who holds it may write, and who does not may wait ([why](https://example.org/)).

- It is taken by a number that only grows,
- it is renewed long before it ends, and
- whoever wakes too late is *fenced*.

```python
async def renew(lease: Lease) -> None:
    while await store.extend(lease.key, lease.epoch, seconds=5):
        await sleep(1.5)  # three tries before the end
```

| who | may |
| --- | --- |
| the owner | write |
| the others | read |
"""

RICH_ANSWER = (
    ANSWER
    + r"""
The chance that $k$ of $n$ leases end is \(p_k = \binom{n}{k} p^k (1-p)^{n-k}\), which costs $5 at most, and

$$
\sum_{k=0}^{n} p_k = \left(p + (1 - p)\right)^n = 1
$$

"""
)
"""An answer with formulas. Each paragraph and each list is drawn while it grows."""

COUNT_FRAMES = """() => {
  const frames = (window.benchFrames = []);
  const step = (now) => { frames.push(now); window.benchStep = requestAnimationFrame(step); };
  requestAnimationFrame(step);
}"""

TAKE_FRAMES = "() => (cancelAnimationFrame(window.benchStep), window.benchFrames)"

OPENED_MS = """() => {
  const at = (name) => performance.getEntriesByName(`threadcast:${name}`).at(-1)?.startTime;
  return [at("shown") - at("snapshot"), at("shown")];
}"""


class Opened(NamedTuple):
    """The milliseconds from the snapshot, and from the opened link, until the chat is painted, and the CPU time of the
    main thread from the link on."""

    snapshot: float
    link: float
    cpu: float


class Streamed(NamedTuple):
    """The frames a second, over the whole time and in the worst second, and the fraction of a core that the main thread
    used."""

    frames: float
    worst: float
    busy: float


def measure(small: bool) -> Section:
    """Measure five repetitions of each; `small` has two. Without Chromium or a built page, the result is a remark
    without figures."""
    command = f"python -m bench.page{' --small' * small}"
    if not (STATIC / "index.html").is_file():
        return Section(
            "page", "the page in Chromium", command, [], ["the page is not built; build it with: scripts/web build"]
        )
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        try:
            chromium = stack.enter_context(launched_chromium())
        except LookupError as missing:
            return Section("page", "the page in Chromium", command, [], [str(missing)])
        harness = stack.enter_context(closing(Harness(Path(directory))))
        harness.start()
        figures = [*_sizes(Path(directory)), *_shown(chromium, harness, 2 if small else 5)]
        return Section("page", f"the page in Chromium {chromium.version}", command, figures)


def _sizes(directory: Path) -> Iterator[Figure]:
    for key, what, size, bar in (
        ("client", "the client library alone, gzip", client_bytes(directory), CLIENT_MAX_BYTES),
        ("first", "loaded before anything is shown, gzip", packed_bytes(first_files()), None),
        ("opened", "loaded until an answer in Markdown is painted, gzip", packed_bytes(opened_files()), PAGE_MAX_BYTES),
        ("all", "all scripts and style sheets, gzip", packed_bytes(page_files()), None),
    ):
        yield figure(f"{key}_bytes", what, [size / 1_000], "kB", bar=bar and bar / 1_000)


def _shown(chromium: Browser, harness: Harness, repeats: int) -> Iterator[Figure]:
    progress(f"page: {LENGTH:,} messages are laid down")
    harness.import_chat(_export("long"))
    opened: list[Opened] = []
    short: list[Streamed] = []
    long: list[Streamed] = []
    rich: list[Streamed] = []
    for number in range(repeats):
        progress(f"page: {number + 1} of {repeats}")
        opened.append(_opened(chromium, harness, "long"))
        harness.import_chat(_export(f"long-{number}"))
        short.append(_streamed(chromium, harness, f"short-{number}"))
        long.append(_streamed(chromium, harness, f"long-{number}"))
        rich.append(_streamed(chromium, harness, f"rich-{number}", RICH_ANSWER))
    what = f"a chat of {LENGTH:,} messages"
    painted = [each.snapshot for each in opened]
    yield figure("open", f"{what}: from its snapshot until it is painted", painted, "ms", bar=OPEN_MAX_MS)
    yield figure("link", f"{what}: from the opened link until it is painted", [each.link for each in opened], "ms")
    yield figure("open_cpu", f"{what}: main thread until then, CPU", [each.cpu for each in opened], "ms")
    scenes = (("short", "a new chat", short), ("long", what, long), ("rich", "a new chat, with formulas", rich))
    for key, where, streamed in scenes:
        at = f"{RATE} words/s in {where}"
        frames = [each.frames for each in streamed]
        yield figure(f"{key}_frames", f"{at}: frames", frames, "/s", bar=FRAMES_MIN, at_most=False)
        yield figure(
            f"{key}_worst", f"{at}: frames in the worst second", [s.worst for s in streamed], "/s", at_most=False
        )
        yield figure(f"{key}_busy", f"{at}: main thread, CPU", [100 * each.busy for each in streamed], "%")


def _opened(chromium: Browser, harness: Harness, chat_id: str) -> Opened:
    with _profile(chromium) as context:
        page = context.new_page()
        meter = _meter(context, page)
        page.goto(f"{harness.url}/c/{chat_id}")
        _wait(page, "() => performance.getEntriesByName('threadcast:shown').length > 0")
        snapshot, link = page.evaluate(OPENED_MS)
        return Opened(snapshot, link, meter() * 1_000)


def _streamed(chromium: Browser, harness: Harness, chat_id: str, words: str = ANSWER) -> Streamed:
    """Stream one answer that repeats these words, and measure from its first second on."""
    with _profile(chromium) as context:
        page = context.new_page()
        page.goto(f"{harness.url}/c/{chat_id}")
        text = words * (1 + RATE * (SECONDS + 2) // len(words.split()))
        harness.message(chat_id, text, params={"model": f"demo/echo?rate={RATE}"})
        _wait(page, "() => document.body.innerText.includes('You said')")
        meter = _meter(context, page)
        worked, began_at = meter(), time.perf_counter()
        page.evaluate(COUNT_FRAMES)
        page.wait_for_timeout(SECONDS * 1_000)
        frames: list[float] = page.evaluate(TAKE_FRAMES)
        took = time.perf_counter() - began_at
        worked = meter() - worked
        harness.command(chat_id, "abort")
    return Streamed((len(frames) - 1) / (frames[-1] - frames[0]) * 1_000, _worst(frames), worked / took)


def _worst(frames: list[float]) -> float:
    """Return the least number of frames in a second that begins with a frame."""
    last = frames[-1] - 1_000
    return min(sum(begins <= at < begins + 1_000 for at in frames) for begins in frames if begins <= last)


def _profile(chromium: Browser) -> closing[BrowserContext]:
    """Create an empty browser context without the page's content policy, which forbids the evaluation that waits for
    conditions."""
    return closing(chromium.new_context(bypass_csp=True))


def _meter(context: BrowserContext, page: Page) -> Callable[[], float]:
    """Return a function that returns the CPU seconds of the page's main thread so far (Chrome DevTools Protocol,
    Performance)."""
    session = context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def worked() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return next(float(each["value"]) for each in metrics if each["name"] == "TaskDuration")

    return worked


def _wait(page: Page, condition: str) -> None:
    page.wait_for_function(condition, timeout=DEADLINE_MS)


def _export(chat_id: str) -> bytes:
    messages = [
        Message(
            role="assistant" if number % 2 else "user",
            content=ANSWER if number % 2 else f"What is a lease, and who holds it? (Asked {number // 2 + 1} times.)",
            message_id=f"m{number}",
            finish_reason="stop" if number % 2 else None,
            parent_id=f"m{number - 1}" if number else None,
        )
        for number in range(LENGTH)
    ]
    chat = ChatExport(chat_id=chat_id, thread=ThreadChanges(), leaf_id=messages[-1].message_id, messages=messages)
    return b"".join(export_lines(chat))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.page", description=__doc__)
    parser.add_argument("--small", action="store_true", help="two repetitions")
    section = measure(parser.parse_args().small)
    progress("")
    print(table(section))
    sys.exit(any(each.holds is False for each in section.figures))
