"""A server that can be killed and comes back at its own address, and people who look at it with a real browser.

`House` is one `threadcast serve` with its data; `People` opens pages: those of one person share a browser profile,
and so the one connection of all its tabs. It knows addresses and what is on the screen, nothing of the page's code. The
rule: what a page complains of (errors, refusals by its Content Security Policy) fails the test, unless it was expected.
"""

import re
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import anyio
import httpx2
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, WebError, expect

from protocol.messages import JsonObject
from tests.conftest import SCREENS
from tests.integration.harness import DEADLINE_SECONDS, Process
from tests.ports import free_port

Found = TypeVar("Found")

__all__ = ["SCREEN_MS", "WORDS", "House", "People", "answered", "messages", "say", "shows", "wait_until"]

SCREEN_MS = 30_000
"""Until something stands on the screen, on a machine that does much else."""

WORDS = re.compile(r"\w+\W+\w+\W+\w+\W+\w+\W+\w+")
"""An answer that has begun."""

expect.set_options(timeout=SCREEN_MS)

LOOK_SECONDS = 0.05
"""Between two looks at what no browser tells of by itself."""

ALWAYS_FINE = re.compile(r"/favicon|\[vite\]|Download the")


class House:
    """One `threadcast serve`; `url` stays over all its lives."""

    def __init__(self, directory: Path, config: str = "", app: Path | None = None) -> None:
        port = free_port()
        self.config = directory / "threadcast.toml"
        """Read at each start."""
        self.config.write_text(config)
        self.url = f"http://127.0.0.1:{port}"
        self._arguments = ["serve", "--port", str(port), "--data-dir", str(directory / "data")]
        self._arguments += ["--config", str(self.config)]
        self._arguments += ["--app", str(app)] if app else []
        self._log = directory / "log"
        self._process: Process | None = None
        self._http = httpx2.Client(base_url=self.url, timeout=DEADLINE_SECONDS)

    def start(self) -> None:
        process = self._process = Process(self._arguments, self._log)
        with ThreadPoolExecutor(1) as thread:  # playwright holds an event loop in this one
            thread.submit(anyio.run, process.ready).result()

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.kill()
        self._process.close()

    def restart(self) -> None:
        self.kill()
        self.start()

    def close(self) -> None:
        self._http.close()
        if self._process is not None:
            self._process.close()

    def get(self, path: str) -> JsonObject:
        answer = self._http.get(path)
        assert answer.status_code == 200, answer.text
        found: JsonObject = answer.json()
        return found

    def command(self, chat_id: str, kind: str, **fields: object) -> None:
        """Post one command from outside the page; it is accepted."""
        body = {"type": kind, "client_request_id": uuid.uuid4().hex, **fields}
        answer = self._http.post(f"/v1/chats/{chat_id}/commands", json=body)
        assert answer.status_code in (200, 202), answer.text

    def message(self, chat_id: str, text: str, **fields: object) -> None:
        """A person's message from outside the page, for instance with `params={"model": …}`."""
        self.command(chat_id, "user_message", content=text, **fields)

    def delete(self, chat_id: str) -> None:
        """Delete a chat, as another device would."""
        answer = self._http.delete(f"/v1/chats/{chat_id}")
        assert answer.status_code == 200, answer.text

    def import_chat(self, lines: bytes | str) -> None:
        answer = self._http.post("/v1/chats/import", content=lines)
        assert answer.status_code == 200, answer.text

    def chat(self, chat_id: str) -> JsonObject:
        """The owner's snapshot."""
        return self.get(f"/v1/chats/{chat_id}")

    def texts(self, chat_id: str) -> list[str]:
        """What the messages of the chat say, root first."""
        return [str(message["content"]) for message in self.chat(chat_id)["messages"]]

    def at_rest(self, chat_id: str, messages: int = 2, seconds: float = DEADLINE_SECONDS) -> JsonObject:
        """Wait until the chat has so many messages and nothing runs; its snapshot."""

        def rests() -> JsonObject | None:
            answer = self._http.get(f"/v1/chats/{chat_id}")
            if answer.status_code != 200:  # the first message was accepted, and the chat begins when it is taken up
                return None
            found: JsonObject = answer.json()
            runtime = found["runtime"]
            is_over = runtime["state"] in ("idle", "completed", "error", "waiting_user_input")
            return found if is_over and not runtime["queue_size"] and len(found["messages"]) >= messages else None

        return wait_until(rests, f"{chat_id} at rest", seconds)


class People:
    """Opens pages of one house. `open_page(path)` is this."""

    def __init__(self, browser: Browser, url: str, name: str) -> None:
        self._browser = browser
        self._url = url
        self._name = name
        self._contexts: dict[str, BrowserContext] = {}
        self._expected: list[re.Pattern[str]] = []
        self.complaints: list[str] = []
        """What pages wrote to the console as errors, and what they threw, unless it was expected."""

    def __call__(self, path: str = "/", *, person: str = "ann", url: str = "", **profile: object) -> Page:
        """A tab. Those of one person share a profile (storage, workers); `profile` is what playwright's `new_context`
        takes, for a person who comes first: `viewport={"width": 390, "height": 844}`, `color_scheme="dark"`. `url`:
        another way to the server."""
        page = self.profile(person, **profile).new_page()
        page.goto((url or self._url) + path)
        return page

    def profile(self, person: str = "ann", **profile: object) -> BrowserContext:
        """What a person's tabs share: `set_offline`, `add_init_script`, `route`."""
        found = self._contexts.get(person)
        if found is None:
            found = self._contexts[person] = self._browser.new_context(**profile)  # type: ignore[arg-type] # its options
            found.set_default_timeout(SCREEN_MS)
            found.on("console", self._hear)
            found.on("weberror", self._hear_error)
        return found

    def expect_complaint(self, pattern: str) -> None:
        """From here on a complaint that holds this is no failure: `net::ERR_` while a server is away."""
        self._expected.append(re.compile(pattern))
        self.complaints = [said for said in self.complaints if not re.search(pattern, said)]

    def shoot(self, page: Page, name: str) -> Path:
        """A picture of the page as it is now, kept under that name."""
        path = SCREENS / f"{name}.png"
        page.screenshot(path=path, animations="disabled")
        return path

    def shoot_all(self) -> None:
        """What everybody sees, after a test that failed."""
        for person, context in self._contexts.items():
            for number, page in enumerate(context.pages):
                self.shoot(page, f"failed-{self._name}-{person}-{number}")

    def close(self) -> None:
        for context in self._contexts.values():
            context.close()

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self._complain(f"{message.text} ({message.location.get('url', '')})")

    def _hear_error(self, error: WebError) -> None:
        self._complain(f"{error.error.name}: {error.error.message}\n{error.error.stack or ''}")

    def _complain(self, said: str) -> None:
        if not ALWAYS_FINE.search(said) and not any(pattern.search(said) for pattern in self._expected):
            self.complaints.append(said)


def say(page: Page, text: str) -> None:
    """Write a message and send it, by the keyboard."""
    box = page.get_by_role("textbox", name="Message")
    box.fill(text)
    box.press("Enter")


def messages(page: Page) -> Locator:
    """Those on the screen, root first."""
    return page.locator("article")


def shows(page: Page, texts: Sequence[str]) -> None:
    """The messages on the screen are these, each whole and nothing else in it but buttons and the like: every word of
    each, in order, once."""
    expect(messages(page)).to_have_count(len(texts))
    for number, text in enumerate(texts):
        words = r"\s+".join(re.escape(word) for word in text.split())
        expect(messages(page).nth(number)).to_have_text(re.compile(words), use_inner_text=True)
        seen = messages(page).nth(number).inner_text()
        assert len(re.findall(words, seen)) == 1, f"twice: {seen}"


def answered(page: Page, count: int = 2) -> None:
    """So many messages are on the screen, and nothing runs any more."""
    expect(messages(page)).to_have_count(count)
    expect(page.get_by_role("button", name="Stop", exact=True)).to_have_count(0)


def wait_until(look: Callable[[], Found | None], what: str, seconds: float = DEADLINE_SECONDS) -> Found:
    """What `look` finds; for what tells nobody that it has changed."""
    ends = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < ends, f"no {what} within {seconds} s"
        time.sleep(LOOK_SECONDS)
    return found
