"""Puts given answers into a chat without a model, and streams given texts."""

import json
from typing import Any

from playwright.sync_api import Locator, Page, expect

from tests.browser.harness import Harness, messages
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["answer", "given", "layout_shift", "stream", "watch_shifts"]


def given(server: Harness, chat_id: str, *texts: str) -> None:
    """Make a chat of questions with these answers, in Markdown."""
    said: list[JsonObject] = []
    for number, text in enumerate(texts):
        said.append({"role": "user", "content": f"question {number}", "message_id": f"q{number}"})
        said.append({"role": "assistant", "content": text, "message_id": f"a{number}", "finish_reason": "stop"})
    server.command(chat_id, "restore_messages", messages=said)
    server.at_rest(chat_id, len(said))


def answer(page: Page, number: int = 0) -> Locator:
    """Return the answer to the question with this number, once it is on the screen."""
    found = messages(page).nth(2 * number + 1)
    expect(found).to_be_visible()
    return found


def stream(server: Harness, chat_id: str, text: str, rate: int = 100) -> None:
    """Start an answer that repeats this text, at `rate` words a second. The answer begins with "You said:"."""
    server.message(chat_id, text, params={"model": f"demo/echo?rate={rate}"})


def watch_shifts(page: Page) -> None:
    """Begin to record the layout shifts within messages (https://web.dev/articles/cls), except shifts after a click."""
    page.evaluate(
        """() => {
          window.shifts = [];
          new PerformanceObserver((list) => {
            const isAnswer = ({ node }) => (node?.closest ? node : node?.parentElement)?.closest("article");
            const moved = list.getEntries().filter((entry) => !entry.hadRecentInput && entry.sources.some(isAnswer));
            window.shifts.push(...moved);
          }).observe({ type: "layout-shift", buffered: true });
        }"""
    )


def layout_shift(page: Page) -> float:
    """Return the sum of the recorded layout shifts. Print the largest ones."""
    found: list[Any] = page.evaluate(  # Any: JSON from the browser
        """() => window.shifts.map((shift) => [shift.value, shift.sources.map((source) => [
          source.node?.nodeName, source.node?.textContent?.slice(0, 40),
          source.previousRect.top, source.currentRect.top, source.previousRect.height, source.currentRect.height])])"""
    )
    print(json.dumps(sorted(found, reverse=True)[:5], indent=1))
    total: float = sum(value for value, _ in found)
    print(f"layout shift {total:.4f}")
    return total
