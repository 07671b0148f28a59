"""Hebrew and Arabic, alone and between English: where lines begin, and on which side bullets and the bars of quotes
are."""

from playwright.sync_api import Locator, expect

from tests.browser.harness import LOOKS, Harness, People, messages, say

CONFIG = """
[models]
default = "demo/echo?rate=0"
"""

ASKED = "שלום, מה שלומך?\nAnd a line in English."

ANSWERED = """# כותרת בעברית

זהו משפט בעברית, עם `code()` ועם English באמצע.

`npm install` מתקין הכול.

- פריט ראשון
- פריט שני
  - פריט פנימי
- [ ] משימה

> ציטוט בעברית

| שם | ערך |
| --- | --- |
| אחת | 1 |

An English paragraph with שלום inside.

- An English item

```py
print('שלום')
```

1. العنصر الأول
2. العنصر الثاني
"""

EDGES = """element => {
    const range = document.createRange();
    range.selectNodeContents(element);
    const text = range.getBoundingClientRect(), box = element.getBoundingClientRect();
    return { left: text.left - box.left, right: box.right - text.right };
}"""
"""Returns the distance of the words from the left and from the right edge of their element."""


def stands_right(block: Locator) -> bool:
    """Check that the words of a block begin at its right edge."""
    place = block.evaluate(EDGES)
    return bool(place["right"] < 3 < place["left"])


def way(element: Locator, rule: str = "direction") -> str:
    found: str = element.evaluate("(element, rule) => getComputedStyle(element)[rule]", rule)
    return found


def test_each_block_runs_the_way_of_its_language(open_page: People, server: Harness, chat_id: str) -> None:
    said = [
        {"role": "user", "content": ASKED, "message_id": "q"},
        {"role": "assistant", "content": ANSWERED, "message_id": "a", "finish_reason": "stop"},
    ]
    server.command(chat_id, "restore_messages", messages=said)
    server.at_rest(chat_id)
    for look, profile in LOOKS.items():
        page = open_page(f"/c/{chat_id}", person=look, **profile)
        answer = messages(page).nth(1)
        expect(answer).to_contain_text("العنصر")
        page.get_by_role("textbox", name="Message").fill("טקסט בעברית, עם English.")
        answer.get_by_role("heading").scroll_into_view_if_needed()
        open_page.shoot(page, f"right-to-left-{look}")

        assert stands_right(answer.get_by_role("heading", name="כותרת"))
        assert stands_right(answer.get_by_text("זהו משפט"))
        assert stands_right(answer.get_by_text("מתקין הכול")), "code before it does not decide"
        assert not stands_right(answer.get_by_text("An English paragraph"))
        assert stands_right(answer.get_by_role("listitem").filter(has_text="פריט פנימי").last)
        for text, marks in {"פריט ראשון": "right", "An English item": "left", "العنصر الأول": "right"}.items():
            item = answer.get_by_role("listitem").filter(has_text=text)
            assert way(item) == ("rtl" if marks == "right" else "ltr")
            # The marker is in the padding of the list, on the side where its lines begin.
            assert float(way(item.locator(".."), f"padding-{marks}").removesuffix("px")) > 20
        quote = answer.locator("blockquote")
        assert (way(quote, "border-right-width"), way(quote, "border-left-width")) == ("3px", "0px")
        first, second = (answer.get_by_role("columnheader", name=name).bounding_box() for name in ("שם", "ערך"))
        assert first and second and first["x"] > second["x"], "the first column is the right one"
        assert way(answer.get_by_role("cell", name="1", exact=True)) == "rtl", (
            "a cell without letters goes with its table"
        )
        assert way(answer.locator("pre")) == "ltr" and way(answer.locator("p code").first) == "ltr"
        assert way(page.get_by_role("textbox", name="Message")) == "rtl"

        bubble = messages(page).nth(0).get_by_text("שלום, מה שלומך?")
        assert way(bubble) == "rtl"
        lines = bubble.evaluate(
            """bubble => { const range = document.createRange(); const text = bubble.firstChild;
            const from = text.data.indexOf("And"); range.setStart(text, from); range.setEnd(text, text.data.length);
            const line = range.getBoundingClientRect(), box = bubble.getBoundingClientRect();
            return line.left - box.left < 30; }"""
        )
        assert lines, "its English line begins on the left"


def test_a_title_and_a_waiting_message_run_their_way(open_page: People, server: Harness, chat_id: str) -> None:
    server.message(chat_id, "שלום, מה שלומך?", params={"model": "demo/hang"})
    page = open_page(f"/c/{chat_id}")
    expect(page.get_by_role("button", name="Stop", exact=True)).to_be_visible()
    title = page.get_by_role("navigation", name="Chats").locator("[aria-current]").get_by_text("שלום")
    assert way(title) == "rtl" and way(page.get_by_role("heading", level=1)) == "rtl"
    say(page, "ועוד שאלה, please.")
    waiting = page.get_by_role("list", name="Waiting messages").get_by_text("ועוד שאלה")
    expect(waiting).to_be_visible()
    assert way(waiting) == "rtl"
    open_page.shoot_looks(page, "right-to-left-waiting")
    server.command(chat_id, "abort", clear_queue=True)
