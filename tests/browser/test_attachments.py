"""Files that cannot be attached are listed once, with the reason and what to do, until the message is sent."""

import re

import pytest
from playwright.sync_api import FilePayload, Locator, Page, expect

from tests.browser.harness import LOOKS, Harness, People, answered, ask, messages, say, wait_until

CONFIG = """
[models]
default = "demo/echo"
"""

KEY = """([fields]) => document.activeElement.dispatchEvent(
    new KeyboardEvent("keydown", { bubbles: true, cancelable: true, ...fields }))"""

DROP_FOLDER = """() => {
    const real = DataTransferItem.prototype.webkitGetAsEntry;
    DataTransferItem.prototype.webkitGetAsEntry = function () {
        return this.getAsFile()?.name === "photos" ? { isDirectory: true } : real.call(this);
    };
    const data = new DataTransfer();
    data.items.add(new File([], "photos"));
    data.items.add(new File(["words"], "notes.txt", { type: "text/plain" }));
    dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
}"""

DROP_LARGE = """([name, bytes]) => {
    const data = new DataTransfer();
    data.items.add(new File([new Uint8Array(bytes)], name));
    dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
}"""

PASTE_TEXT = """([text]) => {
    const data = new DataTransfer();
    data.setData("text/plain", text);
    const event = new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true });
    document.activeElement.dispatchEvent(event);
}"""


def box(page: Page) -> Locator:
    return page.get_by_role("textbox", name="Message", exact=True)


def refusals(page: Page) -> Locator:
    return page.get_by_role("alert", name="Not attached").get_by_role("listitem")


def files(page: Page) -> Locator:
    return page.get_by_role("list", name="Attachments").get_by_role("listitem")


def choose(page: Page, *names: str, size_bytes: int = 10) -> None:
    chosen = [FilePayload(name=name, mimeType="text/plain", buffer=b"x" * size_bytes) for name in names]
    page.get_by_label("Files to attach").set_input_files(chosen)


def uploaded(page: Page, *names: str) -> None:
    """Wait until the message has these attachments, in any order, and no upload is running, since uploads delay the
    message."""
    expect(files(page)).to_have_count(len(names))
    for name in names:
        expect(files(page).filter(has_text=name)).to_have_count(1)
    expect(page.get_by_role("progressbar")).to_have_count(0)


@pytest.mark.parametrize("look", LOOKS)
def test_errors_name_their_files_merge_and_go_with_the_message(open_page: People, look: str) -> None:
    open_page.expect_complaint("net::ERR_|503")
    page = open_page("/", **LOOKS[look])
    for _ in range(3):
        choose(page, "empty.txt", size_bytes=0)
    choose(page, "a-rather-long-name-of-a-report-that-nobody-has-read.csv", "two.csv", "three.csv", size_bytes=0)
    expect(refusals(page)).to_have_count(1)
    expect(refusals(page)).to_contain_text("empty.txt, a-rather-long-name")
    expect(refusals(page)).to_contain_text("and 2 more: the file is empty. Choose another file.")
    page.evaluate(DROP_LARGE, ["huge.bin", 18_000_000])
    expect(refusals(page)).to_have_count(2)
    expect(refusals(page).nth(1)).to_contain_text(
        "huge.bin: 18 MB, and at most 17 MB can be attached. Choose a smaller"
    )
    choose(page, "good.txt")
    uploaded(page, "good.txt")
    open_page.shoot(page, f"attachment-errors-{look}")
    page.get_by_role("button", name=re.compile("^Dismiss huge")).click()
    expect(refusals(page)).to_have_count(1)
    ask(page, "Have a look")
    expect(refusals(page)).to_have_count(0)
    expect(files(page)).to_have_count(0)


def test_a_file_that_failed_on_its_way_keeps_the_message_until_it_is_tried_again_or_dismissed(
    open_page: People, server: Harness
) -> None:
    open_page.expect_complaint("net::ERR_|ERR_FAILED")
    page = open_page("/")
    page.route("**/blobs", lambda route: route.abort(), times=2)
    choose(page, "notes.txt", "more.txt")
    expect(refusals(page)).to_contain_text(
        "notes.txt and more.txt: the upload failed, because the connection was lost. Try again"
    )
    say(page, "With my notes")
    expect(page.get_by_text("A file could not be uploaded. Upload it again or remove it, then send.")).to_be_visible()
    expect(box(page)).to_have_value("With my notes")
    page.get_by_role("button", name="Try notes.txt and more.txt again").click()
    uploaded(page, "notes.txt", "more.txt")
    box(page).press("Enter")
    answered(page)
    found = server.chat(page.url.rpartition("/")[2])["messages"][0]["content"]
    assert sorted(part["type"] for part in found) == ["file", "file", "text"]


def test_a_folder_is_refused_by_name_and_the_files_beside_it_come(page: Page) -> None:
    page.evaluate(DROP_FOLDER)
    expect(refusals(page)).to_have_text(re.compile("photos: this is a folder. Choose the files in it."))
    expect(files(page)).to_contain_text(["notes.txt"])


def test_a_pasted_text_that_no_message_holds_goes_as_a_file(page: Page, server: Harness) -> None:
    box(page).focus()
    page.evaluate(PASTE_TEXT, ["long words " * 30_000])
    uploaded(page, "pasted text.txt")
    expect(box(page)).to_have_value("")
    say(page, "Sum it up")
    expect(messages(page).first).to_contain_text("Sum it up")
    parts = server.chat(page.url.rpartition("/")[2])["messages"][0]["content"]
    assert [part["name"] for part in parts if part["type"] == "file"] == ["pasted text.txt"]


def test_keys_of_an_input_method_neither_send_nor_stop(open_page: People, server: Harness, chat_id: str) -> None:
    server.message(chat_id, "Go on", params={"model": "demo/hang?after=3&rate=0"})
    page = open_page(f"/c/{chat_id}")
    stop = page.get_by_role("button", name="Stop", exact=True)
    expect(stop).to_be_visible()
    box(page).fill("にほん")
    box(page).focus()
    for fields in ({"isComposing": True}, {"keyCode": 229}):
        page.evaluate(KEY, [{"key": "Enter", **fields}])
        page.evaluate(KEY, [{"key": "Escape", **fields}])
    expect(box(page)).to_have_value("にほん")
    box(page).press("Enter")
    expect(page.get_by_role("list", name="Waiting messages").get_by_role("listitem")).to_have_count(1)
    expect(stop).to_be_visible()


def test_a_draft_is_one_in_all_tabs_until_a_tab_writes_something_else(
    open_page: People, server: Harness, chat_id: str
) -> None:
    server.ask(chat_id, "Hello")
    one, two = open_page(f"/c/{chat_id}"), open_page(f"/c/{chat_id}")
    box(one).press_sequentially("the same")
    expect(box(two)).to_have_value("the same")
    box(one).press("Enter")
    answered(two, 4)
    expect(box(two)).to_have_value("")  # otherwise the message would be sent twice
    box(one).fill("mine")
    expect(box(two)).to_have_value("mine")
    box(two).fill("mine, and more")
    expect(box(one)).to_have_value("mine, and more")
    one.evaluate("() => { Storage.prototype.setItem = () => { throw new Error('full'); }; }")
    box(one).fill("something else")
    box(two).press("Enter")
    answered(one, 6)
    expect(box(one)).to_have_value("something else")
    wait_until(lambda: server.texts(chat_id)[4] == "mine, and more", "the message of the second tab")
    expect(messages(one)).to_have_count(6)
