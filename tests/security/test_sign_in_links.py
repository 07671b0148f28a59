"""Links that sign in (`#token=…`) in a real browser: a page of another site can open one, and must not make a user
write under another name."""

import hashlib

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import browser, built_page, chat_id, new_harness, open_page, server  # noqa: F401 # fixtures
from tests.browser.harness import Harness, People, ask, wait_until

pytestmark = [pytest.mark.slow(20), pytest.mark.row("SEC-10")]

EVIL = "http://evil.example"


def token(name: str) -> str:
    return f"tc_{name}-of-these-links"


CONFIG = "".join(
    f'[[auth.tokens]]\nid = "{name}"\nsha256 = "{hashlib.sha256(token(name).encode()).hexdigest()}"\n'
    for name in ("ann", "eve")
)


@pytest.fixture(autouse=True)
def refusals_are_expected(open_page: People) -> None:  # noqa: F811 # the fixture
    open_page.expect_complaint(
        r"status of 40[13]|net::ERR_|CORS policy|Failed to load resource|frame-ancestors|X-Frame"
    )


def is_in(page: Page, name: str) -> None:
    expect(page.get_by_role("dialog", name="Sign in to")).to_have_count(0)
    expect(page.get_by_text(f"Signed in as {name}")).to_be_attached()


def asks(page: Page) -> None:
    """Check that the page asks before it signs eve in, and that the harmless answer has the focus."""
    dialog = page.get_by_role("dialog", name="Sign in as eve instead of ann?")
    expect(dialog).to_be_visible()
    expect(dialog.get_by_role("button", name="Stay signed in as ann")).to_be_focused()


def evil_page(page: Page) -> Page:
    """Return a tab of the same browser that shows a page of another site."""
    page.context.route(f"{EVIL}/**", lambda route: route.fulfill(body="<p>Free cake</p>", content_type="text/html"))
    tab = page.context.new_page()
    tab.goto(f"{EVIL}/")
    return tab


def test_a_foreign_page_replaces_no_login_by_any_way_of_opening_a_link(
    open_page: People,  # noqa: F811
    server: Harness,  # noqa: F811
) -> None:
    ann = open_page(f"/#token={token('ann')}")
    is_in(ann, "ann")
    cookies = ann.context.cookies()
    link = f"{server.url}/#token={token('eve')}"
    evil = evil_page(ann)
    with evil.expect_popup() as opened:  # a new tab
        evil.evaluate("link => void window.open(link)", link)
    asks(opened.value)
    with evil.expect_popup() as opened:  # a tab that already shows the page; only the hash of its address changes
        evil.evaluate("url => { window.tab = window.open(url, 'tab'); }", server.url)
    is_in(opened.value, "ann")
    evil.evaluate("link => { window.tab.location = link; }", link)
    asks(opened.value)
    evil.goto(link)  # the link replaces the page in the same tab, as a click would do
    asks(evil)
    evil.reload()
    is_in(evil, "ann")
    for tab in ann.context.pages:
        assert token("eve") not in tab.url + tab.evaluate("JSON.stringify([localStorage, sessionStorage])")
    assert ann.context.cookies() == cookies
    ask(ann, "Still ann's")
    me = ann.evaluate("async () => (await (await fetch('/v1/session')).json()).principal")
    assert me == "ann"


def test_a_foreign_page_sets_no_cookie_by_a_request_or_a_frame(
    open_page: People,  # noqa: F811
    server: Harness,  # noqa: F811
) -> None:
    ann = open_page(f"/#token={token('ann')}")
    is_in(ann, "ann")
    cookies = ann.context.cookies()
    evil = evil_page(ann)
    how = """async ([url, token, mode]) => {
        const headers = mode === "cors" ? {Authorization: `Bearer ${token}`} : {};
        return fetch(`${url}/v1/session`, {method: "POST", mode, credentials: "include", headers})
            .then(answer => answer.type + answer.status, wrong => "failed");
    }"""
    assert evil.evaluate(how, [server.url, token("eve"), "cors"]) == "failed"
    assert evil.evaluate(how, [server.url, token("eve"), "no-cors"]) in ("opaque0", "failed")
    evil.evaluate(
        """([url, token]) => {
            const frame = document.createElement("iframe");
            frame.src = `${url}/#token=${token}`;
            const form = document.createElement("form");
            Object.assign(form, {action: `${url}/v1/session`, method: "POST", target: "other"});
            const other = document.createElement("iframe");
            other.name = "other";
            other.onload = () => { window.count = (window.count ?? 0) + 1; };
            frame.onload = () => { window.loads = (window.loads ?? 0) + 1; };
            document.body.append(frame, other, form);
            form.submit();
        }""",
        [server.url, token("eve")],
    )
    wait_until(lambda: evil.evaluate("(window.loads ?? 0) >= 1 && (window.count ?? 0) >= 1"), "both frames")
    assert ann.context.cookies() == cookies
    is_in(ann, "ann")


def test_a_session_that_has_ended_is_replaced_only_after_a_question(
    open_page: People,  # noqa: F811
    chat_id: str,  # noqa: F811
) -> None:
    """The cookie of ann has expired, but the page still belongs to her, with her drafts."""
    page = open_page(f"/c/{chat_id}#token={token('ann')}")
    is_in(page, "ann")
    page.context.clear_cookies()
    link = open_page(f"/#token={token('eve')}")
    asks(link)
    link.get_by_role("button", name="Sign in as eve").click()
    is_in(link, "eve")


def test_a_first_login_by_a_link_says_who_is_signed_in(open_page: People) -> None:  # noqa: F811
    page = open_page(f"/#token={token('eve')}", person="new")
    is_in(page, "eve")
    expect(page.get_by_text("Signed in as eve")).to_be_visible()


def test_a_chat_of_another_person_looks_new_and_a_message_to_it_is_refused_in_plain_words(
    open_page: People,  # noqa: F811
    chat_id: str,  # noqa: F811
) -> None:
    ann = open_page(f"/c/{chat_id}#token={token('ann')}")
    is_in(ann, "ann")
    ask(ann, "Only for ann")
    eve = open_page(f"/c/{chat_id}#token={token('eve')}", person="eve")
    is_in(eve, "eve")
    expect(eve.get_by_text("Only for ann")).to_have_count(0)
    box = eve.get_by_role("textbox", name="Message")
    box.fill("What is in here?")
    box.press("Enter")
    expect(eve.get_by_text("Another person’s chat has this address").first).to_be_visible()
    expect(box).to_have_value("What is in here?")
    expect(eve.get_by_text("Only for ann")).to_have_count(0)
