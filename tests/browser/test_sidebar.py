"""The list of chats: updates in every tab, search, groups by day, renaming, deletion, export and import."""

import json
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Locator, Page, expect

from tests.browser.harness import Harness, People, ask, messages, shows

CONFIG = """
[models]
default = "demo/echo"
"""

FEED_MAX_CHATS = 200
"""The stream that updates the list."""


def chats(page: Page) -> Locator:
    """The rows of the list."""
    return page.get_by_role("navigation", name="Chats").get_by_role("listitem").get_by_role("link")


def row(page: Page, title: str) -> Locator:
    return page.get_by_role("navigation", name="Chats").get_by_role("link", name=title)


def act(page: Page, title: str, action: str) -> None:
    """Choose an item in the menu of a chat."""
    row(page, title).hover()
    page.get_by_role("button", name=f"Actions for {title}").click()
    page.get_by_role("menuitem", name=action, exact=True).click()


def named(server: Harness, chat_id: str, title: str) -> None:
    """Make a chat with one answer and a title."""
    server.ask(chat_id, "Hello")
    server.command(chat_id, "set_params", patch={"title": title})


def test_a_chat_is_renamed_and_deleted_in_every_tab(open_page: People, server: Harness, chat_id: str) -> None:
    named(server, chat_id, "Before")
    one, two = open_page(f"/c/{chat_id}"), open_page("/")
    expect(row(two, "Before")).to_be_visible()
    act(one, "Before", "Rename")
    one.get_by_role("textbox", name="Title").fill("  Harbour at night ")
    one.keyboard.press("Enter")
    for page in (one, two):
        expect(row(page, "Harbour at night")).to_be_visible()
    expect(one).to_have_title("Harbour at night · Threadcast")
    row(one, "Harbour at night").press("F2")
    one.keyboard.type("never")
    one.keyboard.press("Escape")
    act(two, "Harbour at night", "Delete")
    two.get_by_role("button", name="Keep it").click()
    expect(row(one, "Harbour at night")).to_be_visible()
    act(one, "Harbour at night", "Delete")
    one.get_by_role("dialog").get_by_role("button", name="Delete").click()
    for page in (one, two):
        expect(row(page, "Harbour at night")).to_have_count(0)
    assert urlsplit(one.url).path == "/"


def test_a_row_says_that_its_chat_works_needs_somebody_or_has_news(open_page: People, server: Harness) -> None:
    for name in ("reads", "asks", "writes"):
        named(server, f"{name}-chat", f"{name}.")
    page = open_page("/c/reads-chat")
    expect(row(page, "writes.")).to_have_accessible_name("writes.")
    server.message("writes-chat", "Write", params={"model": "demo/essay?words=200&rate=100"})
    expect(row(page, "writes. , is answering")).to_be_visible()
    server.message("asks-chat", "Write a note", params={"model": "demo/tools"})
    expect(row(page, "asks. , needs you")).to_be_visible()
    expect(row(page, "writes. , has something new")).to_be_visible()
    row(page, "writes.").click()
    expect(row(page, "writes.")).to_have_accessible_name("writes.")
    row(page, "reads.").click()
    expect(row(page, "writes.")).to_have_accessible_name("writes.")
    server.command("asks-chat", "abort")


def test_links_back_forward_and_the_arrow_keys_lead_from_chat_to_chat(open_page: People, server: Harness) -> None:
    for name in ("first", "second"):
        named(server, f"{name}-of-two", f"{name} of two")
    page = open_page("/c/first-of-two")
    shows(page, server.texts("first-of-two"))
    row(page, "second of two").click()
    expect(page).to_have_title("second of two · Threadcast")
    page.go_back()
    expect(page).to_have_title("first of two · Threadcast")
    expect(row(page, "first of two")).to_have_attribute("aria-current", "page")
    page.go_forward()
    expect(page).to_have_title("second of two · Threadcast")
    page.keyboard.press("Control+k")
    page.keyboard.type("of two")
    page.keyboard.press("ArrowDown")
    expect(row(page, "second of two")).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page).to_have_title("first of two · Threadcast")
    page.keyboard.press("Control+Shift+o")
    expect(page.get_by_role("textbox", name="Message")).to_be_focused()
    assert urlsplit(page.url).path == "/"


def test_a_chat_older_than_the_list_is_found_by_its_words_and_by_paging(open_page: People, server: Harness) -> None:
    server.import_chat("".join(_exported(f"old-{number}", f"Old one {number:03}") for number in range(214)))
    newest = server.get(f"/v1/chats?limit={FEED_MAX_CHATS}")
    oldest = server.get(f"/v1/chats?limit=200&cursor={newest['next_cursor']}")["items"]
    title = next(chat["title"] for chat in oldest if chat["id"].startswith("old-"))
    page = open_page("/", person="bob")
    expect(page.get_by_role("button", name="Show older chats")).to_be_visible()
    expect(row(page, title)).to_have_count(0)
    page.get_by_role("searchbox", name="Search chats").fill(title.upper())
    expect(row(page, title)).to_be_visible()
    page.get_by_role("searchbox", name="Search chats").press("Escape")
    expect(chats(page)).to_have_count(FEED_MAX_CHATS)
    page.get_by_role("button", name="Show older chats").click()
    expect(chats(page)).to_have_count(FEED_MAX_CHATS + len(oldest))
    expect(row(page, title)).to_be_visible()
    expect(page.get_by_role("button", name="Show older chats")).to_have_count(0)


def test_an_exported_chat_comes_back_from_its_file(
    open_page: People, server: Harness, chat_id: str, tmp_path: Path
) -> None:
    page = open_page(f"/c/{chat_id}")
    ask(page, "Keep this: <b>1 < 2</b>")
    server.command(chat_id, "set_params", patch={"title": "Worth keeping"})
    was = server.texts(chat_id)
    with page.expect_download() as markdown:
        act(page, "Worth keeping", "Export as Markdown")
    assert markdown.value.suggested_filename == "Worth-keeping.md"
    assert "## You\n\nKeep this: <b>1 < 2</b>" in markdown.value.path().read_text()
    with page.expect_download() as export:
        act(page, "Worth keeping", "Export")
    kept = tmp_path / export.value.suggested_filename
    export.value.save_as(kept)
    act(page, "Worth keeping", "Delete")
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(row(page, "Worth keeping")).to_have_count(0)
    expect(messages(page)).to_have_count(0)
    page.get_by_label("File of exported chats").set_input_files(kept)
    expect(row(page, "Worth keeping")).to_be_visible()
    shows(page, was)


def _exported(chat_id: str, title: str) -> str:
    """Return a chat with one message in the format of an export."""
    message = {"role": "user", "content": title, "message_id": f"m-{chat_id}"}
    counts = {"message_count": 1, "payload_count": 0, "agent_count": 0, "blob_count": 0}
    header = {"type": "chat", "format": 1, "chat_id": chat_id, "leaf_id": f"m-{chat_id}", **counts}
    lines = ({**header, "thread": {"title": title}}, {"type": "message", "message": message})
    return "".join(json.dumps(line) + "\n" for line in lines)
