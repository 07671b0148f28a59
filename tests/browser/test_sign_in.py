"""Sign-in and sign-out: one for all tabs, nothing lost when a session ends, nothing left for the next person."""

import base64
import hashlib
from collections.abc import Callable

import httpx2
import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.axe import violations
from tests.browser.house import House, People, answered, messages, say, wait_until

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
    """The sign-in screen stands over the page."""
    expect(page.get_by_role("dialog", name="Sign in to")).to_be_visible()


def sign_in(page: Page, given: str) -> None:
    page.get_by_label("Token or link").fill(given)
    page.get_by_role("button", name="Sign in").click()


def is_in(page: Page, name: str, standing: str = "live") -> None:
    expect(page.get_by_role("dialog", name="Sign in to")).to_have_count(0)
    expect(page.get_by_text(f"Signed in as {name}")).to_be_attached()
    expect(page.get_by_role("status").filter(has_text=standing)).to_be_visible()


def kept(page: Page) -> str:
    """All that the browser keeps for this address, but what belongs to no person."""
    text: str = page.evaluate("JSON.stringify(Object.entries(localStorage))")
    return text


@pytest.mark.row("AUTH-1")
def test_the_screen_says_what_is_wanted_and_what_is_wrong_before_it_lets_go(open_page: People, server: House) -> None:
    page = open_page("/")
    screen(page)
    expect(page.get_by_text("Whoever runs it gave you a token")).to_be_visible()
    # No raw error beside it.
    assert not page.get_by_text("Authorization").count()
    open_page.shoot(page, "sign-in-light")
    sign_in(page, "tc_nobody")
    expect(page.get_by_role("alert").filter(has_text="does not know this token")).to_be_visible()
    open_page.shoot(page, "sign-in-wrong-token")
    assert violations(page) == []
    sign_in(page, "two words")
    expect(page.get_by_role("alert").filter(has_text="holds spaces")).to_be_visible()
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
    say(first, "Hello from ann")
    answered(first)
    address = first.url
    with first.context.expect_page() as opened:  # by Ctrl-click
        first.get_by_role("link", name="Hello from ann").click(modifiers=["Control"])
    expect(messages(opened.value)).to_have_count(2)
    pasted = open_page(address.removeprefix(first.evaluate("location.origin")))
    expect(messages(pasted)).to_have_count(2)
    is_in(pasted, "ann")
    open_page.shoot(pasted, "signed-in-light")
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
def test_a_link_for_somebody_else_changes_nothing_before_it_is_confirmed(open_page: People, server: House) -> None:
    """Any page can open such a link, and what Ann writes next would be Bob's to read."""
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
    open_page.shoot(link, "sign-in-instead")
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
    say(page, "Before")
    answered(page)
    page.context.clear_cookies()
    say(page, "Written when nobody knew me")
    screen(page)
    open_page.shoot(page, "sign-in-again")
    sign_in(page, token("ann"))
    is_in(page, "ann")
    answered(page, 4)
    expect(messages(page).nth(2)).to_contain_text("Written when nobody knew me")
    expect(page.get_by_role("alert").filter(has_text="token")).to_have_count(0)


@pytest.mark.row("AUTH-1")
def test_a_token_that_is_taken_back_ends_its_session_and_a_new_one_goes_on_with_it(
    open_page: People, new_house: Callable[..., House], chat_id: str
) -> None:
    open_page.expect_complaint("503")
    house = new_house(config("ann"))
    page = open_page(f"/c/{chat_id}#token={token('ann')}", url=house.url)
    is_in(page, "ann")
    say(page, "With the old token")
    answered(page)
    house.kill()
    say(page, "Held meanwhile")
    fresh = hashlib.sha256(b"tc_fresh").hexdigest()
    house.config.write_text(f'[[auth.tokens]]\nid = "ann"\nsha256 = "{fresh}"\n')
    house.start()
    screen(page)
    assert violations(page) == []
    sign_in(page, "tc_fresh")
    is_in(page, "ann")
    answered(page, 4)
    expect(messages(page).nth(2)).to_contain_text("Held meanwhile")


@pytest.mark.row("AUTH-1")
def test_another_person_in_the_same_browser_sees_nothing_of_the_former(
    open_page: People, server: House, chat_id: str
) -> None:
    page = open_page(f"/c/{chat_id}#token={token('ann')}")
    is_in(page, "ann")
    say(page, "Only for ann")
    answered(page)
    page.get_by_role("textbox", name="Message").fill("A draft of ann")
    page.context.clear_cookies()
    page.reload()
    screen(page)
    sign_in(page, token("bob"))
    is_in(page, "bob", "no such chat")
    expect(page.get_by_role("link", name="Only for ann")).to_have_count(0)
    expect(page.get_by_text("Only for ann")).to_have_count(0)
    other = open_page("/")
    is_in(other, "bob")
    expect(other.get_by_role("textbox", name="Message")).to_have_value("")
    # A tab that still shows ann's page, to a browser that is bob's by now, may not write in bob's name.
    found = other.evaluate(
        """async () => (await fetch('/v1/chats', {headers: {'Threadcast-Principal': 'ann'}})).status"""
    )
    assert found == 401
    # And ann finds what she wrote, when she is back.
    other.context.clear_cookies()
    page.goto(f"{server.url}/c/{chat_id}")
    screen(page)
    sign_in(page, token("ann"))
    is_in(page, "ann")
    expect(page.get_by_role("textbox", name="Message")).to_have_value("A draft of ann")


@pytest.mark.row("AUTH-1")
def test_sign_out_asks_before_unsent_messages_go_and_says_when_the_server_is_away(
    open_page: People, chat_id: str
) -> None:
    page = open_page(f"/c/{chat_id}#token={token('ann')}")
    is_in(page, "ann")
    page.context.set_offline(True)
    say(page, "Not sent yet")
    expect(page.get_by_text("1 waiting to be sent").first).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    asks = page.get_by_role("dialog", name="Sign out?")
    expect(asks).to_contain_text("1 message has not been sent")
    open_page.shoot(page, "sign-out-asks")
    asks.get_by_role("button", name="Sign out and delete").click()
    expect(page.get_by_role("alert").filter(has_text="You are still signed in")).to_be_visible()
    page.context.set_offline(False)
    expect(page.get_by_role("status").filter(has_text="live")).to_be_visible()
    expect(page.get_by_text("waiting to be sent")).to_have_count(0)
    page.get_by_role("button", name="Sign out").click()
    screen(page)
    assert "Not sent yet" not in kept(page)


@pytest.mark.row("AUTH-1")
def test_pictures_are_shown_to_who_is_signed_in_and_to_nobody_else(open_page: People, chat_id: str) -> None:
    page = open_page(f"/c/{chat_id}#token={token('ann')}")
    is_in(page, "ann")
    page.get_by_label("Files to attach").set_input_files({"name": "a.png", "mimeType": "image/png", "buffer": PNG})
    expect(page.get_by_role("button", name="Remove a.png")).to_be_visible()
    say(page, "Look at this")
    answered(page)
    page.reload()  # so that it comes from the server
    shown = messages(page).nth(0).locator("img")
    expect(shown).to_be_visible()
    wait_until(lambda: shown.evaluate("image => image.naturalWidth > 0"), "a picture")
    address = shown.get_attribute("src")
    assert address
    status = "async ([url, credentials]) => (await fetch(url, {credentials, cache: 'no-store'})).status"
    assert [page.evaluate(status, [address, how]) for how in ("same-origin", "omit")] == [200, 401]


@pytest.mark.row("AUTH-1")
def test_a_browser_that_keeps_no_cookies_is_signed_in_for_as_long_as_the_tab_is_open(
    open_page: People, server: House, chat_id: str
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
    say(page, "Without cookies")
    answered(page)
    assert token("ann") not in page.url + kept(page)
    page.reload()
    screen(page)


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        ("dark", {"color_scheme": "dark"}),
        ("phone", {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}),
    ],
)
def test_the_screen_and_the_name_in_the_dark_and_on_a_phone(
    open_page: People, name: str, profile: dict[str, object]
) -> None:
    open_page.profile("ann", **profile)
    page = open_page("/")
    screen(page)
    open_page.shoot(page, f"sign-in-{name}")
    sign_in(page, "tc_wrong")
    expect(page.get_by_role("alert").filter(has_text="does not know this token")).to_be_visible()
    open_page.shoot(page, f"sign-in-wrong-token-{name}")
    width = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert width <= 0
    sign_in(page, token("ann"))
    is_in_any_width(page)
    open_page.shoot(page, f"signed-in-{name}")


def is_in_any_width(page: Page) -> None:
    """On a phone the name stands in the list, which slides in."""
    expect(page.get_by_role("dialog", name="Sign in to")).to_have_count(0)
    if page.get_by_role("button", name="Chats").count():
        page.get_by_role("button", name="Chats").click()
    out = page.get_by_role("button", name="Sign out")
    expect(out).to_be_visible()
    wait_until(lambda: (box := out.bounding_box()) is not None and box["x"] >= 0, "the list in its place")
