"""Answers that stand in a chat without a model, and streams of a given text."""

import json
from typing import Any

from playwright.sync_api import Locator, Page, expect

from protocol.messages import JsonObject
from tests.browser.house import House, messages

__all__ = ["answer", "given", "layout_shift", "stream", "watch_shifts"]


def given(server: House, chat_id: str, *texts: str) -> None:
    """A chat of questions with these answers, in Markdown."""
    said: list[JsonObject] = []
    for number, text in enumerate(texts):
        said.append({"role": "user", "content": f"question {number}", "message_id": f"q{number}"})
        said.append({"role": "assistant", "content": text, "message_id": f"a{number}", "finish_reason": "stop"})
    server.command(chat_id, "restore_messages", messages=said)
    server.at_rest(chat_id, len(said))


def answer(page: Page, number: int = 0) -> Locator:
    """The answer to that question, once it is on the screen."""
    found = messages(page).nth(2 * number + 1)
    expect(found).to_be_visible()
    return found


def stream(server: House, chat_id: str, text: str, rate: int = 100) -> None:
    """Has the text written as an answer, so many words a second. It begins with "You said:"."""
    server.message(chat_id, text, params={"model": f"demo/echo?rate={rate}"})


def watch_shifts(page: Page) -> None:
    """From here on the page keeps the layout shifts within messages (https://web.dev/articles/cls), those after a press
    left out."""
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
    """The sum so far. Where it is large, what moved most is printed."""
    found: list[Any] = page.evaluate(  # Any: what a browser gives
        """() => window.shifts.map((shift) => [shift.value, shift.sources.map((source) => [
          source.node?.nodeName, source.node?.textContent?.slice(0, 40),
          source.previousRect.top, source.currentRect.top, source.previousRect.height, source.currentRect.height])])"""
    )
    print(json.dumps(sorted(found, reverse=True)[:5], indent=1))
    total: float = sum(value for value, _ in found)
    print(f"layout shift {total:.4f}")
    return total
