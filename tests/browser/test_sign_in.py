"""Sign-in and sign-out: in all tabs at once, without lost text when a session ends, and without data left for the next
person."""

import base64
import hashlib
from collections.abc import Callable

import httpx2
import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.axe import violations
from tests.browser.harness import LOOKS, PHONE, Harness, People, answered, ask, messages, say, wait_until

pytestmark = pytest.mark.slow(20)


def token(name: str) -> str:
    return f"tc_{name}-of-these-tests"


def config(*names: str) -> str:
    hashes = {name: hashlib.sha256(token(name).encode()).hexdigest() for name in names}
    return "".join(f'[[auth.tokens]]\nid = "{name}"\nsha256 = "{sha}"\n' for name, sha in hashes.items())


CONFIG = config("ann", "bob")

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture(autouse=True)
def refusals_are_expected(open_page: People) -> None:
    open_page.expect_complaint(r"status of 401|net::ERR_")


def screen(page: Page) -> None:
    """Check that the sign-in screen covers the page."""
    expect(page.get_by_role("dialog", name="Sign in to")).to_be_visible()


def sign_in(page: Page, given: str) -> None:
    page.get_by_label("Token or link").fill(given)
    page.get_by_role("button", name="Sign in").click()


def is_in(page: Page, name: str, standing: str = "live") -> None:
    expect(page.get_by_role("dialog", name="Sign in to")).to_have_count(0)
    expect(page.get_by_text(f"Signed in as {name}")).to_be_attached()
    expect(page.get_by_role("status").filter(has_text=standing)).to_be_visible()


def kept(page: Page) -> str:
    """Return the browser's local storage for this address; other stored data belongs to no person."""
    text: str = page.evaluate("JSON.stringify(Object.entries(localStorage))")
    return text


@pytest.mark.row("AUTH-1")
def test_the_screen_says_what_is_wanted_and_what_is_wrong_before_it_lets_go(open_page: People, server: Harness) -> None:
    page = open_page("/")
    screen(page)
    expect(page.get_by_text("Use the token or link that its operator gave you")).to_be_visible()
    # There is no raw error beside the explanation.
    assert not page.get_by_text("Authorization").count()
    sign_in(page, "tc_nobody")
    expect(page.get_by_role("alert").filter(has_text="does not know this token")).to_be_visible()
    assert violations(page) == []
    sign_in(page, "two words")
    expect(page.get_by_role("alert").filter(has_text="contains spaces")).to_be_visible()
    server.kill()
    sign_in(page, token("ann"))
    expect(page.get_by_role("alert").filter(has_text="could not be checked")).to_be_visible()
    server.start()
    sign_in(page, f"{server.url}/c/x#token={token('ann')}")
    is_in(page, "ann")
    assert token("ann") not in kept(page) + page.url


@pytest.mark.row("AUTH-1")
def test_all_tabs_of_a_browser_are_signed_in_also_later_ones_and_signed_out_together(open_page: People) -> None:
    first, second = open_page("/"), open_page("/")
    screen(first)
    screen(second)
    sign_in(first, token("ann"))
    is_in(first, "ann")
    is_in(second, "ann")
    ask(first, "Hello from ann")
    address = first.url
    with first.context.expect_page() as opened:  # by Ctrl-click
        first.get_by_role("link", name="Hello from ann").click(modifiers=["Control"])
    expect(messages(opened.value)).to_have_count(2)
    pasted = open_page(address.removeprefix(first.evaluate("location.origin")))
    expect(messages(pasted)).to_have_count(2)
    is_in(pasted, "ann")
    open_page.shoot_looks(pasted, "signed-in-by-a-pasted-address")
    pasted.reload()
    is_in(pasted, "ann")
    pasted.get_by_role("button", name="Sign out").click()
    for tab in (first, second, opened.value, pasted):
        screen(tab)
        assert tab.evaluate("location.pathname") == "/"
    assert "ann" not in kept(pasted), "something of ann stays in this browser"
    assert not pasted.context.cookies()
    stranger = open_page(address.removeprefix(first.evaluate("location.origin")))
    screen(stranger)
    expect(messages(stranger)).to_have_count(0)


@pytest.mark.row("AUTH-1")
def test_a_link_with_a_token_signs_in_and_leaves_the_token_nowhere(open_page: People) -> None:
    page = open_page(f"/#token={token('bob')}")
    is_in(page, "bob")
    assert token("bob") not in page.url + kept(page)
    is_in(open_page("/"), "bob")
    wrong = open_page("/#token=tc_wrong", person="carl")
    screen(wrong)
    expect(wrong.get_by_role("alert").filter(has_text="does not know this token")).to_be_visible()


@pytest.mark.row("AUTH-1")
def test_a_link_of_who_is_signed_in_neither_covers_the_page_nor_loads_it_again(open_page: People) -> None:
    first = open_page(f"/#token={token('ann')}")
    is_in(first, "ann")
    page = first.context.new_page()
    page.add_init_script("""
        window.screens = 0;
        const count = () => { window.screens += document.querySelectorAll("dialog").length; };
        new MutationObserver(count).observe(document, { childList: true, subtree: true });
    """)
    loads: list[str] = []
    page.on("load", lambda loaded: loads.append(loaded.url))
    with page.expect_response(lambda response: "/v1/session" in response.url and response.request.method == "POST"):
        page.goto(first.url + f"#token={token('ann')}")
    is_in(page, "ann")
    ask(page, "Hello from the link")
    assert len(loads) == 1, "the page was loaded again"
    assert page.evaluate("window.screens") == 0, "the sign-in screen stood over the page"
    assert token("ann") not in kept(page) + page.url


@pytest.mark.row("AUTH-1")
def test_a_link_for_somebody_else_changes_nothing_before_it_is_confirmed(open_page: People, server: Harness) -> None:
    """Any page can open a link with bob's token. If the link signed bob in at once, bob could read what ann writes
    next."""
    page = open_page(f"/#token={token('ann')}")
    is_in(page, "ann")
    cookies = page.context.cookies()
    posted: list[str] = []
    page.context.on("request", lambda sent: posted.append(sent.url) if sent.method == "POST" else None)
    with page.expect_popup() as opened:
        page.evaluate("address => void window.open(address)", f"{server.url}/#token={token('bob')}")
    link = opened.value
    asks = link.get_by_role("dialog", name="Sign in as bob instead of ann?")
    expect(asks).to_be_visible()
    expect(asks.get_by_role("button", name="Stay signed in as ann")).to_be_focused()
    assert token("bob") not in link.url + kept(link)
    assert not [url for url in posted if url.endswith("/v1/session")]
    assert page.context.cookies() == cookies
    open_page.shoot_looks(link, "sign-in-instead")
    assert violations(link) == []
    asks.get_by_role("button", name="Stay signed in as ann").click()
    is_in(link, "ann")
    is_in(page, "ann")
    assert page.context.cookies() == cookies
    again = open_page(f"/#token={token('bob')}")
    again.get_by_role("dialog", name="instead of ann").get_by_role("button", name="Sign in as bob").click()
    for tab in (again, link, page):
        is_in(tab, "bob")


@pytest.mark.row("AUTH-1")
def test_a_session_that_ends_in_mid_work_is_taken_up_where_it_was(open_page: People, chat_id: str) -> None:
    page = open_page(f"/c/{chat_id}#token={token('ann')}")
    is_in(page, "ann")
    ask(page, "Before")
    page.context.clear_cookies()
    say(page, "Written when nobody knew me")
    screen(page)
    open_page.shoot_looks(page, "sign-in-again")
    sign_in(page, token("ann"))
    is_in(page, "ann")
    answered(page, 4)
    expect(messages(page).nth(2)).to_contain_text("Written when nobody knew me")
    expect(page.get_by_role("alert").filter(has_text="token")).to_have_count(0)


@pytest.mark.row("AUTH-1")
def test_a_token_that_is_taken_back_ends_its_session_and_a_new_one_goes_on_with_it(
    open_page: People, new_harness: Callable[..., Harness], chat_id: str
) -> None:
    open_page.expect_complaint("503")
    harness = new_harness(config("ann"))
    page = open_page(f"/c/{chat_id}#token={token('ann')}", url=harness.url)
    is_in(page, "ann")
    ask(page, "With the old token")
    harness.kill()
    say(page, "Held meanwhile")
    fresh = hashlib.sha256(b"tc_fresh").hexdigest()
    harness.config.write_text(f'[[auth.tokens]]\nid = "ann"\nsha256 = "{fresh}"\n')
    harness.start()
    screen(page)
    assert violations(page) == []
    sign_in(page, "tc_fresh")
    is_in(page, "ann")
    answered(page, 4)
    expect(messages(page).nth(2)).to_contain_text("Held meanwhile")


@pytest.mark.row("AUTH-1")
def test_another_person_in_the_same_browser_sees_nothing_of_the_former(
    open_page: People, server: Harness, chat_id: str
) -> None:
    page = open_page(f"/c/{chat_id}#token={token('ann')}")
    is_in(page, "ann")
    ask(page, "Only for ann")
    page.get_by_role("textbox", name="Message").fill("A draft of ann")
    page.context.clear_cookies()
    page.reload()
    screen(page)
    sign_in(page, token("bob"))
    is_in(page, "bob")
    expect(page.get_by_role("link", name="Only for ann")).to_have_count(0)
    expect(page.get_by_text("Only for ann")).to_have_count(0)
    other = open_page("/")
    is_in(other, "bob")
    expect(other.get_by_role("textbox", name="Message")).to_have_value("")
    # A tab that still shows ann's page after bob has signed in must not write in bob's name.
    found = other.evaluate(
        """async () => (await fetch('/v1/chats', {headers: {'Threadcast-Principal': 'ann'}})).status"""
    )
    assert found == 401
    # After ann has signed in again, she finds her text.
    other.context.clear_cookies()
    page.goto(f"{server.url}/c/{chat_id}")
    screen(page)
    sign_in(page, token("ann"))
    is_in(page, "ann")
    expect(page.get_by_role("textbox", name="Message")).to_have_value("A draft of ann")


@pytest.mark.row("AUTH-1")
@pytest.mark.parametrize("way", ["waits", "reloads"])
def test_sign_out_asks_before_unsent_messages_go_and_without_a_server_is_completed_when_it_is_back(
    open_page: People, server: Harness, chat_id: str, way: str
) -> None:
    page = open_page(f"/c/{chat_id}#token={token('ann')}")
    is_in(page, "ann")
    other = open_page("/")
    is_in(other, "ann")
    ask(page, "Before")
    page.context.set_offline(True)
    say(page, "Not sent yet")
    expect(page.get_by_text("1 waiting to be sent").first).to_be_visible()
    desk = page.viewport_size
    assert desk is not None
    page.set_viewport_size(PHONE)
    title = page.get_by_role("heading", level=1).bounding_box()
    assert title is not None and title["width"] > 80, "what waits leaves no room for the title"
    page.set_viewport_size(desk)
    page.get_by_role("button", name="Sign out").click()
    asks = page.get_by_role("dialog", name="Sign out?")
    expect(asks).to_contain_text("1 message has not been sent")
    open_page.shoot_looks(page, "sign-out-asks")
    asks.get_by_role("button", name="Sign out and delete").click()
    for tab in (page, other):
        expect(tab.get_by_role("heading", name="You are not signed out yet")).to_be_visible()
        expect(tab.get_by_text("Not sent yet")).to_have_count(0)
    assert violations(page) == []
    open_page.shoot(page, "sign-out-without-a-server")
    assert not [each for each in ("ann", "Not sent yet") if each in kept(page)]
    assert page.context.cookies(), "only the server can remove it"
    for tab in (page, other) if way == "reloads" else ():
        tab.goto("about:blank")  # no open page can ask the server again to remove the cookie
    page.context.set_offline(False)
    for tab in (page, other):
        if way == "reloads":
            tab.goto(server.url)
        screen(tab)
    assert not page.context.cookies()
    sign_in(page, token("bob"))
    expect(page.get_by_text("Signed in as bob")).to_be_attached()
    page.reload()
    expect(page.get_by_text("Signed in as bob")).to_be_attached()
    answer = httpx2.get(f"{server.url}/v1/chats/{chat_id}", headers={"Authorization": f"Bearer {token('ann')}"})
    assert [message["content"] for message in answer.json()["messages"]] == ["Before", "You said: Before"]


@pytest.mark.row("AUTH-1")
def test_pictures_are_shown_to_who_is_signed_in_and_to_nobody_else(open_page: People, chat_id: str) -> None:
    page = open_page(f"/c/{chat_id}#token={token('ann')}")
    is_in(page, "ann")
    page.get_by_label("Files to attach").set_input_files({"name": "a.png", "mimeType": "image/png", "buffer": PNG})
    expect(page.get_by_role("button", name="Remove a.png")).to_be_visible()
    ask(page, "Look at this")
    page.reload()  # so that the picture comes from the server
    shown = messages(page).nth(0).locator("img")
    expect(shown).to_be_visible()
    wait_until(lambda: shown.evaluate("image => image.naturalWidth > 0"), "a picture")
    address = shown.get_attribute("src")
    assert address
    status = "async ([url, credentials]) => (await fetch(url, {credentials, cache: 'no-store'})).status"
    assert [page.evaluate(status, [address, how]) for how in ("same-origin", "omit")] == [200, 401]


@pytest.mark.row("AUTH-1")
def test_a_browser_that_keeps_no_cookies_is_signed_in_for_as_long_as_the_tab_is_open(
    open_page: People, server: Harness, chat_id: str
) -> None:
    def without_cookie(route: Route) -> None:
        if route.request.method != "POST":
            return route.continue_()
        answer = httpx2.post(f"{server.url}/v1/session", headers={"Authorization": f"Bearer {token('ann')}"})
        return route.fulfill(status=answer.status_code, body=answer.content, content_type="application/json")

    open_page.profile().route("**/v1/session", without_cookie)
    page = open_page(f"/c/{chat_id}")
    screen(page)
    sign_in(page, token("ann"))
    is_in(page, "ann")
    ask(page, "Without cookies")
    assert token("ann") not in page.url + kept(page)
    page.reload()
    screen(page)


@pytest.mark.parametrize("look", LOOKS)
def test_the_screen_and_the_name_stand_in_every_window(open_page: People, look: str) -> None:
    open_page.profile("ann", **LOOKS[look])
    page = open_page("/")
    screen(page)
    open_page.shoot(page, f"sign-in-{look}")
    sign_in(page, "tc_wrong")
    expect(page.get_by_role("alert").filter(has_text="does not know this token")).to_be_visible()
    open_page.shoot(page, f"sign-in-wrong-token-{look}")
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    sign_in(page, token("ann"))
    is_in_any_width(page, is_phone=look == "phone")
    open_page.shoot(page, f"signed-in-{look}")


def is_in_any_width(page: Page, *, is_phone: bool) -> None:
    """On a phone the name is in the list, which must be opened."""
    expect(page.get_by_role("dialog", name="Sign in to")).to_have_count(0)
    if is_phone:
        page.get_by_role("button", name="Chats").click()
    out = page.get_by_role("button", name="Sign out")
    expect(out).to_be_visible()
    wait_until(lambda: (box := out.bounding_box()) is not None and box["x"] >= 0, "the list in its place")
