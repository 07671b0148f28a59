"""The page in a place: a scope in the address, and what a page around it hands over; and who may not.

Host pages are served by small servers of other ports, which are other origins to a browser.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from playwright.sync_api import FrameLocator, Locator, Page, expect

from tests.browser.axe import violations
from tests.browser.house import House, People, answered, say
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
    """A host page of another origin."""

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
def hosts(server: House) -> Iterator[tuple[str, str]]:
    """The addresses of a host page whose origin is named, and of one whose origin is not."""
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
    """`heard(text)` waits until the console of the page has a warning with this text."""
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type == "warning" else None)

    def heard(text: str) -> None:
        if not any(text in each for each in said):
            page.wait_for_event("console", lambda message: text in message.text)

    yield heard


def last_context(server: House, chat_id: str) -> object:
    users = [each for each in server.at_rest(chat_id)["messages"] if each["role"] == "user"]
    return users[-1].get("context") or None


def newest_chat(server: House) -> str:
    found: str = server.get("/v1/chats?limit=1")["items"][0]["id"]
    return found


# The address.


@pytest.mark.parametrize("look", ["light", "dark", "phone"])
def test_a_scope_in_the_address_is_shown_sent_and_kept_until_it_is_taken_away(
    open_page: People, server: House, look: str
) -> None:
    more = {"viewport": {"width": 390, "height": 844}} if look == "phone" else {"color_scheme": look}
    page = open_page("/?scope=reports/articles", person=look, **more)
    expect(page.get_by_text("At the articles.")).to_be_visible()
    expect(page.get_by_role("button", name="This report")).to_be_visible()
    expect(chip(page)).to_have_text("Place: reports / articles", use_inner_text=True)
    open_page.shoot(page, f"p9-scope-{look}")
    assert not violations(page)
    say(page, "Hello")
    answered(page)
    page.wait_for_url("**/c/*?scope=reports/articles")
    chat_id = page.url.rpartition("/c/")[2].partition("?")[0]
    assert last_context(server, chat_id) == {"scope": ["reports", "articles"]}
    if look == "phone":
        page.get_by_role("button", name="Chats").click()
    link = page.get_by_role("navigation", name="Chats").get_by_role("link").first
    assert str(link.get_attribute("href")).endswith("?scope=reports/articles")
    page.get_by_role("button", name="New chat").click()
    expect(page).to_have_url(f"{server.url}/?scope=reports/articles")
    expect(chip(page)).to_have_text("Place: reports / articles", use_inner_text=True)
    page.get_by_role("button", name="Leave this place").click()
    expect(page).to_have_url(f"{server.url}/")
    expect(chip(page)).to_have_count(0)
    expect(page.get_by_text("What shall we talk about?")).to_be_visible()
    say(page, "Elsewhere")
    answered(page)
    assert last_context(server, newest_chat(server)) is None


@pytest.mark.parametrize("scope", ["a/b/c/d", "white%20space", "x" * 65])
def test_an_address_that_names_no_place_says_so_and_nothing_is_sent(
    open_page: People, server: House, scope: str
) -> None:
    page = open_page(f"/?scope={scope}")
    expect(page.get_by_text("The scope in the address is no place")).to_be_visible()
    expect(chip(page)).to_have_count(0)
    say(page, "Hello")
    answered(page)
    assert last_context(server, newest_chat(server)) is None


# The page around this one.


def test_a_page_of_a_named_origin_frames_the_chat_and_its_newest_context_goes_with_each_message(
    open_page: People, server: House, hosts: tuple[str, str]
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
    open_page.shoot(page, "p9-framed")
    frame.get_by_role("button", name="This report").click()
    expect(frame.get_by_role("article").get_by_text("You said: What is this report?")).to_be_visible()
    chat_id = newest_chat(server)
    assert last_context(server, chat_id) == REPORT
    expect(frame.get_by_role("article", name="You")).to_contain_text("Page: Sleep and memory")
    tell(page, context({**REPORT, "report_id": "r-8", "title": "Light"}))
    expect(chip(frame)).to_have_text("Page: Light", use_inner_text=True)
    ask(frame, "And this?")
    assert last_context(server, chat_id) == {**REPORT, "report_id": "r-8", "title": "Light"}
    tell(page, context(None))
    expect(chip(frame)).to_have_count(0)
    ask(frame, "And now?")
    assert last_context(server, chat_id) is None


def ask(frame: FrameLocator, text: str) -> None:
    box = frame.get_by_role("textbox", name="Message")
    box.fill(text)
    box.press("Enter")
    expect(frame.get_by_role("article").get_by_text(f"You said: {text}")).to_be_visible()


def test_a_person_takes_away_what_the_page_hands_over_and_it_stays_away_until_wanted(
    open_page: People, server: House, hosts: tuple[str, str]
) -> None:
    page = open_page("/", url=hosts[0])
    frame = page.frame_locator("iframe")
    expect(frame.get_by_role("textbox", name="Message")).to_be_visible()
    tell(page, context(REPORT))
    frame.get_by_role("button", name="Do not send the page's details").click()
    expect(chip(frame)).to_contain_text("The page's details are not sent.")
    tell(page, context({**REPORT, "title": "Pushed again"}))
    ask(frame, "Hello")
    assert last_context(server, newest_chat(server)) is None
    expect(chip(frame)).to_contain_text("The page's details are not sent.")
    frame.get_by_role("button", name="Send them").click()
    expect(chip(frame)).to_have_text("Page: Pushed again", use_inner_text=True)
    ask(frame, "Hello again")
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
    for wrong in ("text", 7, [1], {"text": "x" * 65_536}):
        tell(page, context(wrong))
    page.evaluate("() => { const loop = {}; loop.loop = loop; tell({ type: 'threadcast.context', context: loop }); }")
    page.evaluate("() => tell({ type: 'threadcast.context', context: { n: 10n } })")
    page.evaluate("() => tell({ type: 'threadcast.context' })")
    page.wait_for_function("heard.length === 7")
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
    open_page: People, hosts: tuple[str, str], server: House
) -> None:
    """A named page inside a stranger's: every page around the chat must be named (CSP Level 3, frame-ancestors)."""
    open_page.expect_complaint("frame-ancestors|net::ERR_BLOCKED_BY_RESPONSE|Framing")
    page = open_page("/", url=hosts[1])
    page.evaluate("(url) => { document.querySelector('iframe').src = url; }", hosts[0])
    friend = page.frame_locator("iframe")
    expect(friend.locator("iframe")).to_be_attached()
    expect(friend.frame_locator("iframe").get_by_role("textbox", name="Message")).to_have_count(0)


def test_a_stranger_who_opens_the_chat_is_ignored_and_counted_and_a_named_page_is_heard(
    open_page: People, server: House, hosts: tuple[str, str]
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
        say(opened, "Hello")
        answered(opened)
        opened.get_by_role("button", name="Developer").click()
        expect(opened.get_by_text("1 ignored; the browser's console says why")).to_be_visible()
        assert last_context(server, newest_chat(server)) is None
        assert page.evaluate("heard") == [{"type": "threadcast.ready"}], "a stranger is told nothing else"


def test_the_page_hears_neither_itself_nor_a_frame_inside_it(open_page: People, hosts: tuple[str, str]) -> None:
    page = open_page("/", url=hosts[0])
    inside = page.frame_locator("iframe")
    expect(inside.get_by_role("textbox", name="Message")).to_be_visible()
    with warned(page) as heard:
        page.frames[1].evaluate("() => postMessage({ type: 'threadcast.context', context: { title: 'mine' } }, '*')")
        heard("it comes from a window that neither frames nor opened this page")
    expect(chip(inside)).to_have_count(0)


def test_without_named_origins_nobody_frames_the_page(open_page: People, new_house: Callable[..., House]) -> None:
    house = new_house('[models]\ndefault = "demo/echo"\n')
    with serving(free_port(), f"{house.url}/") as host:
        open_page.expect_complaint("frame-ancestors|net::ERR_BLOCKED_BY_RESPONSE|Framing")
        page = open_page("/", url=host)
        expect(page.frame_locator("iframe").get_by_role("textbox", name="Message")).to_have_count(0)
    assert house.get("/v1/caps")["frame_origins"] == []
