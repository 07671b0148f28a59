"""A server that can be killed and restarted at the same address, and people who use it with a real browser.

`Harness` is one `threadcast serve` with its data; `People` opens pages. All tabs of one person share a browser profile,
and so one connection. An error that a page reports (such as a refusal by its Content Security Policy) fails the test,
unless the test expects it.
"""

import re
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import httpx2
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, ViewportSize, WebError, expect

from tests.conftest import SCREENS
from tests.ports import free_port
from tests.support.server import DEADLINE_SECONDS, Process
from threadcast_protocol.wire.messages import JsonObject

Found = TypeVar("Found")

__all__ = [
    "LOOKS",
    "PHONE",
    "SCREEN_MS",
    "WORDS",
    "Harness",
    "People",
    "answered",
    "ask",
    "messages",
    "say",
    "shows",
    "wait_until",
]

SCREEN_MS = 30_000
"""Maximum time until an element appears, on a busy machine."""

WORDS = re.compile(r"\w+\W+\w+\W+\w+\W+\w+\W+\w+")
"""Matches an answer of at least five words."""

expect.set_options(timeout=SCREEN_MS)

PHONE = ViewportSize(width=390, height=844)

LOOKS: dict[str, dict[str, Any]] = {  # Any: options of a browser's profile
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"viewport": PHONE, "has_touch": True},
}
"""The screens and colours of the tests. `sheet.py` has a column for each of them."""

LOOK_SECONDS = 0.05
"""The pause between two checks of a condition that no browser event reports."""

TWO_FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
"""Waits for two frames, in which a page applies another size or other colours."""

ALWAYS_FINE = re.compile(r"/favicon|\[vite\]|Download the")


class Harness:
    """One `threadcast serve`. `url` stays the same after a restart."""

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
        self._process = Process(self._arguments, self._log).wait_ready()

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.kill()
        self._process.close()

    def wait_for_end(self) -> None:
        """Wait until the process has ended by itself."""
        process = self._process
        assert process is not None
        wait_until(lambda: process.has_ended, "end of the process")
        process.close()

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
        """Post one command from outside the page, and check that it is accepted."""
        body = {"type": kind, "client_request_id": uuid.uuid4().hex, **fields}
        answer = self._http.post(f"/v1/chats/{chat_id}/commands", json=body)
        assert answer.status_code in (200, 202), answer.text

    def message(self, chat_id: str, text: str, **fields: object) -> None:
        """Post a message from outside the page, for instance with `params={"model": …}`."""
        self.command(chat_id, "user_message", content=text, **fields)

    def ask(self, chat_id: str, text: str, messages: int = 2) -> JsonObject:
        """Post a message, wait until the chat rests with this many messages, and return its snapshot."""
        self.message(chat_id, text)
        return self.at_rest(chat_id, messages)

    def delete(self, chat_id: str) -> None:
        """Delete a chat, as another device would."""
        answer = self._http.delete(f"/v1/chats/{chat_id}")
        assert answer.status_code == 200, answer.text

    def import_chat(self, lines: bytes | str) -> None:
        answer = self._http.post("/v1/chats/import", content=lines)
        assert answer.status_code == 200, answer.text

    def chat(self, chat_id: str) -> JsonObject:
        """Return the owner's snapshot."""
        return self.get(f"/v1/chats/{chat_id}")

    def texts(self, chat_id: str) -> list[str]:
        """Return the texts of the chat's messages, root first."""
        return [str(message["content"]) for message in self.chat(chat_id)["messages"]]

    def at_rest(self, chat_id: str, messages: int = 2, seconds: float = DEADLINE_SECONDS) -> JsonObject:
        """Wait until the chat has this many messages and no open run, and return its snapshot."""

        def rests() -> JsonObject | None:
            answer = self._http.get(f"/v1/chats/{chat_id}")
            if answer.status_code != 200:  # the chat begins only when a worker processes its accepted first message
                return None
            found: JsonObject = answer.json()
            runtime = found["runtime"]
            is_over = runtime["state"] in ("idle", "completed", "error", "waiting_user_input")
            return found if is_over and not runtime["queue_size"] and len(found["messages"]) >= messages else None

        return wait_until(rests, f"{chat_id} at rest", seconds)


class People:
    """Opens pages of one server. The fixture `open_page` is an instance."""

    def __init__(self, browser: Browser, url: str, name: str) -> None:
        self._browser = browser
        self._url = url
        self._name = name
        self._contexts: dict[str, BrowserContext] = {}
        self._expected: list[re.Pattern[str]] = []
        self.complaints: list[str] = []
        """Errors that pages wrote to the console or threw, except expected ones."""

    def __call__(self, path: str = "/", *, person: str = "ann", url: str = "", **profile: object) -> Page:
        """Open a tab. The tabs of one person share a profile (storage, workers). `profile` has options of playwright's
        `new_context` for a person's first tab: `**LOOKS["phone"]`, `viewport={"width": 900, "height": 800}`. `url` is
        another address of the server."""
        page = self.profile(person, **profile).new_page()
        page.goto((url or self._url) + path)
        return page

    def profile(self, person: str = "ann", **profile: object) -> BrowserContext:
        """Return the profile of a person's tabs, which has `set_offline`, `add_init_script` and `route`."""
        found = self._contexts.get(person)
        if found is None:
            found = self._contexts[person] = self._browser.new_context(**profile)  # type: ignore[arg-type] # its options
            found.set_default_timeout(SCREEN_MS)
            found.on("console", self._hear)
            found.on("weberror", self._hear_error)
        return found

    def requests(self, person: str = "ann") -> list[str]:
        """Record the requests of a person's tabs from now on; returns the list of their addresses, which grows."""
        found: list[str] = []
        self.profile(person).on("request", lambda request: found.append(request.url))
        return found

    def expect_complaint(self, pattern: str) -> None:
        """Let errors that match `pattern` not fail the test, such as `net::ERR_` while a server is down."""
        self._expected.append(re.compile(pattern))
        self.complaints = [said for said in self.complaints if not re.search(pattern, said)]

    def shoot(self, page: Page, name: str) -> Path:
        """Store a picture of the page under this name."""
        path = SCREENS / f"{name}.png"
        page.screenshot(path=path, animations="disabled")
        return path

    def shoot_looks(
        self,
        page: Page,
        name: str,
        *,
        at: Locator | None = None,
        ready: Callable[[], object] | None = None,
    ) -> None:
        """Store pictures of the page in light, in dark and on a phone: `NAME-light`, `NAME-dark`, `NAME-phone`.

        Before each picture, `ready` waits for the elements that are drawn again, such as diagrams, and the page is
        scrolled to `at`. Afterwards the page has its former size and colours.
        """
        size, is_dark = page.viewport_size, page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
        assert size is not None
        for look in LOOKS:
            page.set_viewport_size(PHONE if look == "phone" else size)
            page.emulate_media(color_scheme="dark" if look == "dark" else "light")
            page.evaluate(TWO_FRAMES)
            if ready is not None:
                ready()
            if at is not None:
                at.scroll_into_view_if_needed()
            self.shoot(page, f"{name}-{look}")
        page.set_viewport_size(size)
        page.emulate_media(color_scheme="dark" if is_dark else "light")
        page.evaluate(TWO_FRAMES)

    def shoot_all(self) -> None:
        """Store pictures of all open pages after a failed test."""
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
    """Write a message and send it by Enter, or by the button where Enter on a screen keyboard begins a new line."""
    box = page.get_by_role("textbox", name="Message")
    box.fill(text)
    if page.evaluate("matchMedia('(hover: hover) and (pointer: fine)').matches"):
        box.press("Enter")
    else:
        page.get_by_role("button", name=re.compile("^(Send|Queue)$")).click()


def ask(page: Page, text: str, count: int = 2) -> None:
    """Send a message, and wait until the screen has `count` messages with its answer."""
    say(page, text)
    answered(page, count)


def messages(page: Page) -> Locator:
    """Return the messages on the screen, root first."""
    return page.locator("article")


def shows(page: Page, texts: Sequence[str]) -> None:
    """Check that the screen shows exactly these messages: each contains all words of its text, in order and once."""
    expect(messages(page)).to_have_count(len(texts))
    for number, text in enumerate(texts):
        words = r"\s+".join(re.escape(word) for word in text.split())
        expect(messages(page).nth(number)).to_have_text(re.compile(words), use_inner_text=True)
        seen = messages(page).nth(number).inner_text()
        assert len(re.findall(words, seen)) == 1, f"twice: {seen}"


def answered(page: Page, count: int = 2) -> None:
    """Wait until this many messages are on the screen and the run has ended."""
    expect(messages(page)).to_have_count(count)
    expect(page.get_by_role("button", name="Stop", exact=True)).to_have_count(0)


def wait_until(look: Callable[[], Found | None], what: str, seconds: float = DEADLINE_SECONDS) -> Found:
    """Call `look` until it returns a true value, and return that. Wait for a condition that no event reports."""
    ends = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < ends, f"no {what} within {seconds} s"
        time.sleep(LOOK_SECONDS)
    return found
