"""The page in a scope: the scope in the address, the context from an embedding page, and refused origins.

Small servers on other ports serve the host pages, so that they have other origins.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from playwright.sync_api import ConsoleMessage, FrameLocator, Locator, Page, expect

from tests.browser.axe import violations
from tests.browser.harness import LOOKS, Harness, People, ask
from tests.ports import free_port

FRIEND, STRANGER = free_port(), free_port()

CONFIG = f"""
[server]
frame_origins = ["http://127.0.0.1:{FRIEND}"]

[models]
default = "demo/echo?rate=0"

[profiles.agent]
title = "Library help"

[profiles.agent.scopes.reports]
greeting = "At the reports."
starters = [{{ title = "This report", text = "What is this report?" }}]

[profiles.agent.scopes."reports/articles"]
greeting = "At the articles."
"""

HOST = """<!doctype html><title>host</title>
<iframe title="chat" src="%s" style="width: 100%%; height: 95vh"></iframe>
<script>
  window.heard = [];
  const frame = document.querySelector("iframe");
  addEventListener("message", (event) => event.source === frame.contentWindow && heard.push(event.data));
  window.tell = (message) => frame.contentWindow.postMessage(message, "*");
</script>"""

OPENER = """<!doctype html><title>opener</title>
<script>
  window.heard = [];
  addEventListener("message", (event) => heard.push(event.data));
  window.open_chat = () => { window.chat = window.open("%s"); };
  window.tell = (message) => chat.postMessage(message, "*");
</script>"""

REPORT = {"title": "Sleep and memory", "scope": ["reports"], "report_id": "r-7"}


@contextmanager
def serving(port: int, html: str) -> Iterator[str]:
    """Serve a host page of another origin."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = (OPENER if self.path == "/opener" else HOST).replace("%s", html).replace("%%", "%").encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as host:
        Thread(target=host.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            host.shutdown()


@pytest.fixture(scope="module")
def hosts(server: Harness) -> Iterator[tuple[str, str]]:
    """The addresses of a host page with an allowed origin, and of a host page with a refused origin."""
    with ExitStack() as stack:
        yield (
            stack.enter_context(serving(FRIEND, f"{server.url}/")),
            stack.enter_context(serving(STRANGER, f"{server.url}/")),
        )


def chip(page: Page | FrameLocator) -> Locator:
    return page.get_by_role("list", name="Sent with your message").get_by_role("listitem")


def tell(page: Page, message: object) -> None:
    page.evaluate("(message) => tell(message)", message)


def context(value: object) -> dict[str, object]:
    return {"type": "threadcast.context", "context": value}


@contextmanager
def warned(page: Page) -> Iterator[Callable[[str], None]]:
    """`heard(text)` waits until the page's console has a warning with this text."""
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type == "warning" else None)

    def heard(text: str) -> None:
        if not any(text in each for each in said):
            page.wait_for_event("console", lambda message: text in message.text)

    yield heard


def last_context(server: Harness, chat_id: str) -> object:
    users = [each for each in server.at_rest(chat_id)["messages"] if each["role"] == "user"]
    return users[-1].get("context") or None


def newest_chat(server: Harness) -> str:
    found: str = server.get("/v1/chats?limit=1")["items"][0]["id"]
    return found


# The address.


@pytest.mark.parametrize("look", LOOKS)
def test_a_scope_in_the_address_is_shown_sent_and_kept_until_it_is_taken_away(
    open_page: People, server: Harness, look: str
) -> None:
    page = open_page("/?scope=reports/articles", person=look, **LOOKS[look])
    expect(page.get_by_text("At the articles.")).to_be_visible()
    expect(page.get_by_role("button", name="This report")).to_be_visible()
    expect(chip(page)).to_have_text("Section: reports / articles", use_inner_text=True)
    open_page.shoot(page, f"scope-{look}")
    assert not violations(page)
    ask(page, "Hello")
    page.wait_for_url("**/c/*?scope=reports/articles")
    chat_id = page.url.rpartition("/c/")[2].partition("?")[0]
    assert last_context(server, chat_id) == {"scope": ["reports", "articles"]}
    if look == "phone":
        page.get_by_role("button", name="Chats").click()
    link = page.get_by_role("navigation", name="Chats").get_by_role("link").first
    assert str(link.get_attribute("href")).endswith("?scope=reports/articles")
    page.get_by_role("button", name="New chat").click()
    expect(page).to_have_url(f"{server.url}/?scope=reports/articles")
    expect(chip(page)).to_have_text("Section: reports / articles", use_inner_text=True)
    page.get_by_role("button", name="Do not send this section").click()
    expect(page).to_have_url(f"{server.url}/")
    expect(chip(page)).to_have_count(0)
    expect(page.get_by_text("What shall we talk about?")).to_be_visible()
    ask(page, "Elsewhere")
    assert last_context(server, newest_chat(server)) is None


@pytest.mark.parametrize("scope", ["a/b/c/d", "white%20space", "x" * 65])
def test_an_address_that_names_no_place_says_so_and_nothing_is_sent(
    open_page: People, server: Harness, scope: str
) -> None:
    page = open_page(f"/?scope={scope}")
    expect(page.get_by_text("The scope in the address is malformed")).to_be_visible()
    if scope == "a/b/c/d":
        open_page.shoot_looks(page, "scope-of-no-place")
    expect(chip(page)).to_have_count(0)
    ask(page, "Hello")
    assert last_context(server, newest_chat(server)) is None


# The page that embeds the chat's page.


def test_a_page_of_a_named_origin_frames_the_chat_and_its_newest_context_goes_with_each_message(
    open_page: People, server: Harness, hosts: tuple[str, str]
) -> None:
    page = open_page("/", url=hosts[0], viewport={"width": 900, "height": 800})
    frame = page.frame_locator("iframe")
    expect(frame.get_by_role("textbox", name="Message")).to_be_visible()
    page.wait_for_function("heard.some((each) => each.type === 'threadcast.ready')")
    assert page.evaluate("heard") == [{"type": "threadcast.ready"}], "it says nothing else"
    tell(page, context(REPORT))
    expect(chip(frame)).to_have_text("Page: Sleep and memory", use_inner_text=True)
    expect(frame.get_by_text("At the reports.")).to_be_visible()
    chip(frame).get_by_text("Page: Sleep and memory").click()
    expect(frame.get_by_text('"report_id": "r-7"')).to_be_visible()
    open_page.shoot_looks(page, "framed")
    frame.get_by_role("button", name="This report").click()
    expect(frame.get_by_role("article").get_by_text("You said: What is this report?")).to_be_visible()
    chat_id = newest_chat(server)
    assert last_context(server, chat_id) == REPORT
    expect(frame.get_by_role("article", name="You")).to_contain_text("Page: Sleep and memory")
    tell(page, context({**REPORT, "report_id": "r-8", "title": "Light"}))
    expect(chip(frame)).to_have_text("Page: Light", use_inner_text=True)
    ask_in(frame, "And this?")
    assert last_context(server, chat_id) == {**REPORT, "report_id": "r-8", "title": "Light"}
    tell(page, context(None))
    expect(chip(frame)).to_have_count(0)
    ask_in(frame, "And now?")
    assert last_context(server, chat_id) is None


def ask_in(frame: FrameLocator, text: str) -> None:
    box = frame.get_by_role("textbox", name="Message")
    box.fill(text)
    box.press("Enter")
    expect(frame.get_by_role("article").get_by_text(f"You said: {text}")).to_be_visible()


def test_a_person_takes_away_what_the_page_hands_over_and_it_stays_away_until_wanted(
    open_page: People, server: Harness, hosts: tuple[str, str]
) -> None:
    page = open_page("/", url=hosts[0])
    frame = page.frame_locator("iframe")
    expect(frame.get_by_role("textbox", name="Message")).to_be_visible()
    tell(page, context(REPORT))
    frame.get_by_role("button", name="Do not send the page's details").click()
    expect(chip(frame)).to_contain_text("The page's details are not sent.")
    open_page.shoot_looks(page, "framed-details-not-sent")
    tell(page, context({**REPORT, "title": "Pushed again"}))
    ask_in(frame, "Hello")
    assert last_context(server, newest_chat(server)) is None
    expect(chip(frame)).to_contain_text("The page's details are not sent.")
    frame.get_by_role("button", name="Send them").click()
    expect(chip(frame)).to_have_text("Page: Pushed again", use_inner_text=True)
    ask_in(frame, "Hello again")
    assert last_context(server, newest_chat(server)) == {**REPORT, "title": "Pushed again"}


def test_what_has_a_wrong_shape_or_is_too_large_changes_nothing_and_the_host_is_told(
    open_page: People, hosts: tuple[str, str]
) -> None:
    page = open_page("/", url=hosts[0])
    frame = page.frame_locator("iframe")
    expect(frame.get_by_role("textbox", name="Message")).to_be_visible()
    tell(page, context(REPORT))
    expect(chip(frame)).to_have_text("Page: Sleep and memory", use_inner_text=True)
    page.evaluate("heard.length = 0")
    for wrong in ("'text'", "7", "[1]", "{ text: 'x'.repeat(65536) }", "loop", "{ n: 10n }", "undefined"):
        page.evaluate(
            """(wrong) => {
              const before = heard.length;
              const loop = {};
              loop.loop = loop;
              tell({ type: "threadcast.context", context: new Function("loop", `return ${wrong}`)(loop) });
              return new Promise((done) => addEventListener("message", () => heard.length > before && done()));
            }""",
            wrong,
        )
    reasons = [each["reason"] for each in page.evaluate("heard")]
    assert [each["type"] for each in page.evaluate("heard")] == ["threadcast.refused"] * 7
    assert reasons[0] == "context must be an object of JSON, or null" and "65536 are taken" in reasons[3]
    tell(page, {"type": "somebody.elses", "context": {"title": "x"}})
    tell(page, "text")
    expect(chip(frame)).to_have_text("Page: Sleep and memory", use_inner_text=True)


def test_a_page_of_another_origin_cannot_frame_the_chat(open_page: People, hosts: tuple[str, str]) -> None:
    open_page.expect_complaint("frame-ancestors|net::ERR_BLOCKED_BY_RESPONSE|Framing")
    page = open_page("/", url=hosts[1])
    inside = page.frames[1]
    assert "/v1" not in inside.url and inside.get_by_role("textbox").count() == 0
    assert page.evaluate("heard") == []


def test_a_stranger_between_the_chat_and_a_named_page_cannot_frame_it_either(
    open_page: People, hosts: tuple[str, str], server: Harness
) -> None:
    """An allowed page inside another page: all pages around the chat must be allowed (CSP Level 3, frame-ancestors)."""
    open_page.expect_complaint("frame-ancestors|net::ERR_BLOCKED_BY_RESPONSE|Framing")
    page = open_page("/", url=hosts[1])
    page.evaluate("(url) => { document.querySelector('iframe').src = url; }", hosts[0])
    friend = page.frame_locator("iframe")
    expect(friend.locator("iframe")).to_be_attached()
    expect(friend.frame_locator("iframe").get_by_role("textbox", name="Message")).to_have_count(0)


def test_a_stranger_who_opens_the_chat_is_ignored_and_counted_and_a_named_page_is_heard(
    open_page: People, server: Harness, hosts: tuple[str, str]
) -> None:
    for host, is_heard in ((hosts[1], False), (hosts[0], True)):
        page = open_page("/opener", url=host)
        with page.expect_popup() as popup:
            page.evaluate("open_chat()")
        opened = popup.value
        with warned(opened) as heard:
            expect(opened.get_by_role("textbox", name="Message")).to_be_visible()
            page.wait_for_function("heard.some((each) => each.type === 'threadcast.ready')")
            tell(page, context(REPORT))
            if is_heard:
                expect(chip(opened)).to_have_text("Page: Sleep and memory", use_inner_text=True)
                continue
            heard(f"a message from {host} is ignored: its origin is not among server.frame_origins")
        expect(chip(opened)).to_have_count(0)
        ask(opened, "Hello")
        opened.get_by_role("button", name="Developer").click()
        expect(opened.get_by_text("1 ignored; the reasons are in the browser's console")).to_be_visible()
        assert last_context(server, newest_chat(server)) is None
        assert page.evaluate("heard") == [{"type": "threadcast.ready"}], "a stranger is told nothing else"


FLOOD = """([message, count]) => {
  const copies = Array.from({ length: count }, (_, at) => structuredClone({ ...message, at }));
  for (const each of copies) if (each.context) each.context.title = `Page ${each.at + 1}`;
  for (const each of copies) tell(each);
}"""

LISTEN = """(count) => {
  window.arrived = new Promise((done) => {
    let seen = 0;
    let begun = 0;
    addEventListener("message", () => {
      begun ||= performance.now();
      if (++seen === count) setTimeout(() => done(performance.now() - begun)); // after what the page does with them
    });
  });
}"""
"""Measures how long the page is busy with many messages, from the first to the last."""

MANY = 20_000


def flooded(host: Page, opened: Page, message: object) -> float:
    """Return the milliseconds for which `opened` is busy with MANY messages from `host`."""
    opened.evaluate(LISTEN, MANY)
    host.evaluate(FLOOD, [message, MANY])
    took: float = opened.evaluate("arrived")
    return took


def listener(said: list[str]) -> Callable[[ConsoleMessage], None]:
    return lambda message: said.append(message.text)


def test_a_flood_of_contexts_keeps_the_page_no_busier_than_messages_that_are_not_for_it(
    open_page: People, hosts: tuple[str, str]
) -> None:
    for host in (hosts[1], hosts[0]):
        page = open_page("/opener", url=host)
        with page.expect_popup() as popup:
            page.evaluate("open_chat()")
        opened = popup.value
        said: list[str] = []
        opened.on("console", listener(said))
        expect(opened.get_by_role("textbox", name="Message")).to_be_visible()
        page.wait_for_function("heard.some((each) => each.type === 'threadcast.ready')")
        other = min(flooded(page, opened, {"type": "somebody.elses", "context": REPORT}) for _ in range(2))
        opened.evaluate(
            """() => {
              window.titles = new Set();
              new MutationObserver(() => {
                const chip = document.querySelector("[aria-label='Sent with your message'] summary");
                if (chip) titles.add(chip.textContent);
              }).observe(document.body, { childList: true, subtree: true, characterData: true });
              window.began = performance.now();
            }"""
        )
        took = flooded(page, opened, context(REPORT))
        print(f"{host}: {took:.0f} ms for contexts, {other:.0f} ms for other messages, {took / other:.2f} times")
        assert took < 12 * other  # a page that handles each message takes about 30 times as long
        ask(opened, "Still here")
        if host == hosts[0]:
            expect(chip(opened)).to_have_text(f"Page: Page {MANY}", use_inner_text=True)
            shown, seconds = opened.evaluate("[titles.size, (performance.now() - began) / 1000]")
            assert shown <= 2 + 10 * seconds
            assert said == []
        else:
            expect(chip(opened)).to_have_count(0)
            assert len(said) == 1 and f"a message from {host} is ignored" in said[0], said[:3]
            opened.get_by_role("button", name="Developer").click()
            expect(opened.get_by_text(f"{MANY} ignored; the reasons are in the browser's console")).to_be_visible()


def test_a_message_that_is_sent_at_once_goes_with_the_newest_context(
    open_page: People, server: Harness, hosts: tuple[str, str]
) -> None:
    page = open_page("/", url=hosts[0])
    frame = page.frame_locator("iframe")
    box = frame.get_by_role("textbox", name="Message")
    expect(box).to_be_visible()
    box.fill("Hello")
    page.frames[1].evaluate(
        """() => {
          let heard = 0;
          addEventListener("message", () => {
            if (++heard < 3) return;
            document.querySelector("textarea").dispatchEvent(
              new KeyboardEvent("keydown", { key: "Enter", code: "Enter", bubbles: true, cancelable: true }));
          });
        }"""
    )
    page.evaluate("(all) => all.forEach(tell)", [context({"title": title}) for title in ("One", "Two", "Three")])
    expect(frame.get_by_role("article").get_by_text("You said: Hello")).to_be_visible()
    assert last_context(server, newest_chat(server)) == {"title": "Three"}


def test_the_page_hears_neither_itself_nor_a_frame_inside_it(open_page: People, hosts: tuple[str, str]) -> None:
    page = open_page("/", url=hosts[0])
    inside = page.frame_locator("iframe")
    expect(inside.get_by_role("textbox", name="Message")).to_be_visible()
    with warned(page) as heard:
        page.frames[1].evaluate("() => postMessage({ type: 'threadcast.context', context: { title: 'mine' } }, '*')")
        heard("it comes from a window that neither frames nor opened this page")
    expect(chip(inside)).to_have_count(0)


def test_without_named_origins_nobody_frames_the_page(open_page: People, new_harness: Callable[..., Harness]) -> None:
    harness = new_harness('[models]\ndefault = "demo/echo"\n')
    with serving(free_port(), f"{harness.url}/") as host:
        open_page.expect_complaint("frame-ancestors|net::ERR_BLOCKED_BY_RESPONSE|Framing")
        page = open_page("/", url=host)
        expect(page.frame_locator("iframe").get_by_role("textbox", name="Message")).to_have_count(0)
    assert harness.get("/v1/caps")["frame_origins"] == []
