"""The conversation: versions of messages, hostile content, the reader's place, and copying."""

import json

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.harness import SCREEN_MS, Harness, People, answered, ask, messages, wait_until
from threadcast_protocol.wire.messages import JsonObject

CONFIG = """
[models]
default = "demo/echo?rate=0"
"""

EVIL = '<img src=x onerror="document.title=`owned`;window.owned=1"><script>window.owned=1</script>'

EVIL_LINKS = "[a](javascript:window.owned=1) <a href='javascript:window.owned=1'>b</a> ![c](javascript:window.owned=1)"

EVIL_MARKDOWN = """EVIL

# EVIL

```EVIL
EVIL
```

| EVIL |
| - |
| EVIL |

- EVIL
""".replace("EVIL", EVIL)

LONG = "One line of many.\n\n" * 60


def versions(page: Page, at: int) -> Locator:
    return messages(page).nth(at).get_by_role("group", name="Versions")


def from_end(page: Page) -> float:
    """Return how many pixels of the conversation are below the visible part."""
    found: float = page.get_by_role("log").evaluate("box => box.scrollHeight - box.scrollTop - box.clientHeight")
    return found


PLACE_AT_REST = """async (box) => {
    for (let frames = 0, last = -1; frames < 5; frames = box.scrollTop === last ? frames + 1 : 0) {
        last = box.scrollTop;
        await new Promise(requestAnimationFrame);
    }
    return box.scrollTop;
}"""
"""Waits until the browser has ended its smooth scrolling."""


def restored(server: Harness, chat_id: str, said: list[JsonObject]) -> None:
    server.command(chat_id, "restore_messages", messages=said)
    server.at_rest(chat_id, len(said))


def test_an_edited_message_is_a_version_and_both_are_there_to_be_read(open_page: People, chat_id: str) -> None:
    page = open_page(f"/c/{chat_id}")
    ask(page, "first words")
    messages(page).nth(0).hover()
    page.get_by_role("button", name="Edit").click()
    box = page.get_by_role("textbox", name="Edit message")
    expect(box).to_have_value("first words")
    box.fill("second words")
    box.press("Enter")
    expect(messages(page).nth(1)).to_contain_text("You said: second words")
    expect(versions(page, 0)).to_contain_text("2/2")

    versions(page, 0).get_by_role("button", name="Previous version").click()
    expect(messages(page).nth(0)).to_contain_text("first words")
    expect(messages(page).nth(1)).to_contain_text("You said: first words")
    expect(versions(page, 0)).to_contain_text("1/2")
    expect(versions(page, 0).get_by_role("button", name="Previous version")).to_be_disabled()


def test_an_answer_is_given_again_by_another_model_and_the_chat_is_forked(open_page: People, chat_id: str) -> None:
    page = open_page(f"/c/{chat_id}")
    ask(page, "hello")
    messages(page).nth(1).get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="another model").click()
    page.get_by_role("dialog").get_by_role("button", name="demo/reasoning").click()
    expect(versions(page, 1)).to_contain_text("2/2")
    expect(messages(page).nth(1)).to_contain_text("Thought")  # only a tab that watched the reasoning shows its time
    answered(page)

    messages(page).nth(1).get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="Fork").click()
    page.wait_for_url(lambda url: chat_id not in url)
    answered(page)
    expect(messages(page).nth(0)).to_contain_text("hello")


def test_nothing_that_is_said_or_made_is_ever_carried_out(open_page: People, server: Harness, chat_id: str) -> None:
    evil = f"{EVIL} {EVIL_LINKS}"
    call = {
        "id": "call_1",
        "index": 0,
        "type": "function",
        "function": {"name": EVIL[:64], "arguments": json.dumps({EVIL: EVIL})},
    }
    said = [
        {"role": "user", "content": evil, "message_id": "m1"},
        {
            "role": "assistant",
            "content": f"{evil}\n\n{EVIL_MARKDOWN}",
            "message_id": "m2",
            "parent_id": "m1",
            "reasoning_content": evil,
            "tool_calls": [call],
            "citations": [
                {"url": "javascript:window.owned=1", "title": EVIL},
                {"url": "https://a.example/", "title": EVIL},
            ],
            "model": EVIL,
            "warning": EVIL,
            "finish_reason": "tool_calls",
        },
        {"role": "tool", "content": evil, "message_id": "m3", "parent_id": "m2", "tool_call_id": "call_1"},
        {"role": "event", "content": evil, "message_id": "m4", "parent_id": "m3"},
        {
            "role": "assistant",
            "content": "The end of it.",
            "message_id": "m5",
            "parent_id": "m4",
            "finish_reason": "stop",
        },
    ]
    payload = {
        "payload_id": "p1",
        "payload_type": EVIL,
        "data": {EVIL: evil, "url": "javascript:window.owned=1"},
        "summary": evil,
        "source": "tool",
        "message_id": "m2",
    }
    header = {
        "type": "chat",
        "format": 1,
        "chat_id": chat_id,
        "leaf_id": "m5",
        "message_count": 5,
        "payload_count": 1,
        "agent_count": 0,
    }
    lines: list[JsonObject] = [{**header, "thread": {"title": EVIL}}]
    lines += [{"type": "message", "message": message} for message in said]
    lines += [{"type": "payload", "payload": payload}]
    server.import_chat("\n".join(json.dumps(line) for line in lines))

    open_page.expect_complaint("")  # the browser logs each refused attempt in its console
    page = open_page(f"/c/{chat_id}")
    expect(page.get_by_text("The end of it.")).to_be_visible()
    for folded in page.locator("details").all():
        folded.evaluate("part => { part.open = true }")
    expect(messages(page).nth(0)).to_contain_text("<img src=x onerror")
    expect(messages(page).nth(1)).to_contain_text("<img src=x onerror")
    assert page.locator("img, script:not([src]), main [onerror], main a[href^=javascript]").count() == 0
    for link in messages(page).locator("a[href]").all():
        assert link.get_attribute("target") == "_blank"
        assert "noopener" in (link.get_attribute("rel") or "")
    for link in messages(page).locator("a:not([href])").all():
        link.click()
    assert page.evaluate("window.owned") is None


def test_the_end_stays_in_sight_until_the_reader_looks_elsewhere(
    open_page: People, server: Harness, chat_id: str
) -> None:
    page = open_page(f"/c/{chat_id}")
    server.message(chat_id, "Tell me", params={"model": "demo/essay?words=1500&rate=150"})
    log = page.get_by_role("log")
    wait_until(lambda: log.evaluate("box => box.scrollTop") > 200, "an answer longer than the window")
    wait_until(lambda: from_end(page) <= 2, "the end, as soon as the new words are drawn")
    log.hover()
    page.mouse.wheel(0, -150)
    button = page.get_by_role("button", name="Jump to newest")
    expect(button).to_be_visible()
    first_seen = log.evaluate(PLACE_AT_REST)
    left = from_end(page)
    wait_until(lambda: from_end(page) > left + 100, "a longer answer")
    assert log.evaluate("box => box.scrollTop") == pytest.approx(first_seen, abs=2)
    button.click()
    expect(button).to_have_count(0)
    wait_until(lambda: from_end(page) <= 2, "the end")
    server.command(chat_id, "abort")


def test_a_long_chat_shows_its_end_then_what_is_scrolled_to_and_keeps_the_place(
    open_page: People, server: Harness, chat_id: str
) -> None:
    said: list[JsonObject] = []
    for number in range(200):
        said.append({"role": "user", "content": f"question {number}", "message_id": f"q{number}"})
        said.append({"role": "assistant", "content": f"answer **{number}**\n\n{LONG}", "message_id": f"a{number}"})
    restored(server, chat_id, said)
    page = open_page(f"/c/{chat_id}")
    expect(page.get_by_text("question 199")).to_be_attached()
    assert messages(page).count() < 60
    wait_until(lambda: from_end(page) <= 2, "the end")

    log = page.get_by_role("log")
    log.focus()
    drawn = messages(page).count()
    page.keyboard.press("Home")
    wait_until(lambda: messages(page).count() > drawn, "older messages")
    assert log.evaluate(PLACE_AT_REST) > 1_000, "what was put in front moved the reader to the top"

    page.goto(page.url.split("#")[0] + "#m-a50")
    expect(page.get_by_text("question 50", exact=True)).to_be_attached()
    expect(page.locator("#m-a50")).to_be_in_viewport()
    page.get_by_role("button", name="New chat").click()
    expect(log).to_have_count(0)
    page.go_back()
    expect(page.locator("#m-a50")).to_be_in_viewport()


CODE = """1. so:
   ```sh
   ls -l
   ```

```python
print('<b>')
```
"""


@pytest.mark.parametrize("has_clipboard", [True, False])
def test_code_is_copied_also_where_the_page_may_not_use_the_clipboard(
    open_page: People, server: Harness, chat_id: str, has_clipboard: bool
) -> None:
    restored(
        server,
        chat_id,
        [
            {"role": "user", "content": "code", "message_id": "q"},
            {
                "role": "assistant",
                "content": "1. so:\n   ```sh\n   ls -l\n   ```\n\n```python\nprint('<b>')\n```\n",
                "message_id": "a",
            },
        ],
    )
    context = open_page.profile()
    if has_clipboard:
        context.grant_permissions(["clipboard-read", "clipboard-write"])
    else:
        context.add_init_script("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page = open_page(f"/c/{chat_id}")
    box = page.get_by_role("textbox", name="Message")
    for number, code in enumerate(["ls -l", "print('<b>')"]):
        button = page.locator("figure").nth(number).get_by_role("button")
        button.click()
        expect(button).to_have_text("Copied", timeout=SCREEN_MS)
        box.fill("")
        box.press("Control+v")
        expect(box).to_have_value(code)
