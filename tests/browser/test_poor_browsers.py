"""Browsers without storage, workers or locks, with too many open chats, or with the page in the back-forward cache."""

import json
from collections.abc import Iterator
from contextlib import closing

import pytest
from playwright.sync_api import Browser, Page, Response, expect

from tests.browser.chromium import launch
from tests.browser.harness import PHONE, Harness, People, answered, ask, messages, say, shows, wait_until
from tests.browser.line import Line, opened_line

pytestmark = pytest.mark.slow(20)

BLOCKED = """
for (const name of ["localStorage", "sessionStorage", "indexedDB"])
    Object.defineProperty(window, name, { get() { throw new DOMException("Access is denied", "SecurityError"); } });
"""
"""Chromium raises this error where cookies are blocked for a site."""

FULL = """
Storage.prototype.setItem = () => { throw new DOMException("The quota has been exceeded.", "QuotaExceededError"); };
"""

NO_LOCKS = "Object.defineProperty(Navigator.prototype, 'locks', { value: undefined })"
"""The Web Locks API is missing in a page over plain HTTP from another machine."""

NO_CHANNEL = "delete window.BroadcastChannel"

WORKER = "**/assets/worker-*.js"

KEEPS_NOTHING = "This browser does not store data"

STREAM_MAX_CHATS = 64


def is_live(page: Page) -> None:
    expect(page.get_by_role("status").filter(has_text="live")).to_be_visible()


def streams(people: People) -> list[str]:
    """Record the streams that ann's tabs open from now on; returns the list of their addresses, which grows."""
    opened: list[str] = []
    people.profile().on("request", lambda request: opened.append(request.url) if "subscribe?" in request.url else None)
    return opened


@pytest.mark.parametrize(("name", "script"), [("blocked", BLOCKED), ("full", FULL)])
def test_a_browser_that_keeps_nothing_shows_the_page_and_says_so_once(
    open_page: People, server: Harness, chat_id: str, name: str, script: str
) -> None:
    open_page.profile().add_init_script(script)
    page = open_page(f"/c/{chat_id}")
    is_live(page)
    page.get_by_role("textbox", name="Message").fill("A draft")
    notice = page.get_by_role("alert").filter(has_text=KEEPS_NOTHING)
    expect(notice).to_be_visible()
    open_page.shoot_looks(page, f"storage-{name}")
    notice.get_by_role("button", name="Dismiss").click()
    ask(page, "What is a lease?")
    shows(page, server.texts(chat_id))
    page.get_by_role("textbox", name="Message").fill("Another draft")
    page.get_by_role("button", name="New chat").click()
    page.go_back()
    expect(page.get_by_role("textbox", name="Message")).to_have_value("Another draft")
    expect(notice).to_have_count(0)


@pytest.mark.parametrize("fault", ["missing", "blocked by a policy", "throws", "never answers"])
def test_tabs_whose_worker_fails_share_the_connection_of_one_of_them(
    open_page: People, server: Harness, chat_id: str, fault: str
) -> None:
    open_page.expect_complaint("status of 404|ERR_|worker|Content Security Policy")
    if fault == "missing":
        open_page.profile().route(WORKER, lambda route: route.fulfill(status=404))
    elif fault == "blocked by a policy":
        open_page.profile().route(WORKER, lambda route: route.abort("blockedbyclient"))
    elif fault == "throws":
        open_page.profile().add_init_script("window.SharedWorker = class { constructor() { throw new Error('no'); } }")
    else:
        open_page.profile().route(WORKER, lambda route: route.fulfill(body="", content_type="text/javascript"))
    opened = streams(open_page)
    first = open_page(f"/c/{chat_id}")
    is_live(first)
    second = open_page(f"/c/{chat_id}")
    is_live(second)
    say(second, "What is a lease?")
    for tab in (first, second):
        answered(tab)
        shows(tab, server.texts(chat_id))
    assert len(opened) == 1, "a tab beside the elected one has a connection of its own"
    if fault == "missing":
        open_page.shoot_looks(second, "worker-missing")


def test_tabs_whose_worker_is_ended_go_on_without_it(
    open_page: People, server: Harness, browser: Browser, chat_id: str
) -> None:
    tabs = [open_page(f"/c/{chat_id}") for _ in range(2)]
    say(tabs[0], "Before")
    for tab in tabs:
        answered(tab)
    end_workers(browser)
    server.message(chat_id, "After")
    for tab in tabs:
        answered(tab, 4)
        is_live(tab)
        shows(tab, server.texts(chat_id))


def end_workers(browser: Browser) -> None:
    """End all SharedWorkers of the browser, as a crash does."""
    devtools = browser.new_browser_cdp_session()
    answers: list[str] = []
    devtools.on("Target.receivedMessageFromTarget", lambda event: answers.append(event["message"]))
    workers = [each for each in devtools.send("Target.getTargets")["targetInfos"] if each["type"] == "shared_worker"]
    assert workers
    for worker in workers:
        session = devtools.send("Target.attachToTarget", {"targetId": worker["targetId"], "flatten": False})[
            "sessionId"
        ]
        close = {"id": 1, "method": "Runtime.evaluate", "params": {"expression": "self.close()"}}
        devtools.send("Target.sendMessageToTarget", {"sessionId": session, "message": json.dumps(close)})
    devtools.detach()


@pytest.mark.parametrize("missing", [NO_LOCKS, NO_CHANNEL])
def test_where_nothing_can_be_shared_each_tab_has_its_own_connection(
    open_page: People, server: Harness, chat_id: str, missing: str
) -> None:
    open_page.profile().add_init_script(f"delete window.SharedWorker; {missing}")
    opened = streams(open_page)
    tabs = [open_page(f"/c/{chat_id}") for _ in range(2)]
    say(tabs[0], "What is a lease?")
    for tab in tabs:
        answered(tab)
        shows(tab, server.texts(chat_id))
    assert len(opened) == len(tabs)


@pytest.fixture
def line(server: Harness, open_page: People) -> Iterator[Line]:
    open_page.expect_complaint("net::ERR_")
    with opened_line(server.url) as line:
        yield line


def test_without_locks_an_unsent_message_still_outlives_a_reload(
    open_page: People, server: Harness, line: Line, chat_id: str
) -> None:
    open_page.profile().add_init_script(NO_LOCKS)
    page = open_page(f"/c/{chat_id}", url=line.url)
    is_live(page)
    line.down()
    say(page, "Written on the train")
    expect(page.get_by_text("1 waiting to be sent").first).to_be_visible()
    line.up()
    page.reload()
    server.at_rest(chat_id)
    answered(page)
    shows(page, server.texts(chat_id))
    assert server.texts(chat_id).count("Written on the train") == 1
    is_live(page)


OPEN_MANY = """
async (ids) => {
    const [url, options] = window.openedWorker;
    const { port } = new SharedWorker(url, options);
    const told = (window.told = {});
    port.onmessage = ({ data }) => {
        if (data.on === "item") told[data.chatId] = data.item.kind;
        if (data.on === "gone") told[data.chatId] = "gone";
    };
    port.postMessage({ options: { url: location.origin, awaitsSignIn: true }, lock: "" });
    for (const chatId of ids) {
        port.postMessage({ do: "watch", chatId });
        port.postMessage({ do: "look", chatId });
    }
}
"""
"""Sends the worker the messages of many tabs, without opening them."""

NOTE_WORKER = """
window.SharedWorker = class extends SharedWorker {
    constructor(url, options) { super(url, options); window.openedWorker ??= [url, options]; }
};
"""


def test_of_more_chats_than_a_stream_carries_those_looked_at_last_are_live_and_none_is_refused(
    open_page: People, server: Harness, chat_id: str
) -> None:
    refused: list[str] = []

    def hear(response: Response) -> None:
        if response.status >= 400:
            refused.append(f"{response.status} {response.url}")

    open_page.profile().on("response", hear)
    open_page.profile().add_init_script(NOTE_WORKER)
    page = open_page(f"/c/{chat_id}")
    ask(page, "The first of many")
    others = [f"{chat_id}-{number}" for number in range(STREAM_MAX_CHATS)]
    page.evaluate(OPEN_MANY, others)
    expect(page.get_by_role("status").filter(has_text="not followed")).to_be_visible()
    open_page.shoot_looks(page, "chats-beyond-a-stream")
    desk = page.viewport_size
    assert desk is not None
    page.set_viewport_size(PHONE)
    reason = page.get_by_text("too many chats are open here").bounding_box()
    assert reason is not None and reason["width"] > 100, "a phone says why, too"
    page.set_viewport_size(desk)
    wait_until(lambda: page.evaluate("Object.keys(told).length") == len(others), "a word to each chat")
    assert "gone" not in page.evaluate("Object.values(told)")
    server.ask(chat_id, "From elsewhere, while nobody looks", 4)
    expect(messages(page)).to_have_count(2)
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # its tab is visible
    is_live(page)
    answered(page, 4)
    shows(page, server.texts(chat_id))
    wait_until(lambda: list(page.evaluate("told").values()).count("resting") == 1, "one other chat at rest")
    assert not refused


def test_a_page_that_comes_back_from_the_cache_of_the_way_back_goes_on(
    server: Harness, browser: Browser, chat_id: str
) -> None:
    with (
        closing(launch(browser.browser_type, without=["--disable-back-forward-cache"])) as other,
        closing(People(other, server.url, "put-aside")) as people,
    ):
        page = people(f"/c/{chat_id}")
        ask(page, "Before")
        for count in range(4, 14, 2):
            page.evaluate("addEventListener('pageshow', (event) => { window.wasPutAside = event.persisted; })")
            page.goto(f"http://localhost:{server.url.rpartition(':')[2]}/livez")  # another origin
            server.ask(chat_id, "While it was put aside", count)
            page.go_back(wait_until="commit")  # nothing is loaded, so no more events are shown
            answered(page, count)
            if page.evaluate("window.wasPutAside"):
                break  # Chromium decides which pages it keeps, and reloads other pages when the machine is busy
        else:
            raise AssertionError("Chromium put the page aside in none of five attempts")
        shows(page, server.texts(chat_id))
        is_live(page)
        assert not people.complaints


@pytest.mark.parametrize("script", ["", "delete window.SharedWorker"], ids=["worker", "elected"])
def test_a_page_that_the_browser_put_aside_goes_on_when_it_is_shown_again(
    open_page: People, server: Harness, chat_id: str, script: str
) -> None:
    open_page.profile().add_init_script(script)
    page = open_page(f"/c/{chat_id}")
    ask(page, "Before")
    page.evaluate("dispatchEvent(new PageTransitionEvent('pagehide', {persisted: true}))")
    server.ask(chat_id, "While it was put aside", 4)
    expect(messages(page)).to_have_count(2)
    page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', {persisted: true}))")
    answered(page, 4)
    shows(page, server.texts(chat_id))
    is_live(page)
    ask(page, "After", 6)
