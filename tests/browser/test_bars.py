"""Checks the whole page: nothing jumps while an answer streams, and all panels are accessible.

The pictures `panel-…` show the same screens in light, in dark and on a phone.
"""

import json

import pytest
from playwright.sync_api import Page, expect

from tests.browser.axe import violations
from tests.browser.harness import PHONE, Harness, People, answered, ask, say
from tests.browser.test_drawer import open_drawer
from tests.browser.test_tools import APP, CONFIG, call, question

__all__ = ["APP", "CONFIG"]

SHIFT_MAX = 0.01
"""The limit for a whole answer: a tenth of the layout shift that https://web.dev/articles/cls calls good."""

ANSWER = """\
A lease is a promise **with an end** ([why](https://example.org/)).

- It is taken by a number that only grows,
- it is renewed long before it ends.

```python
async def renew(lease: Lease) -> None:
    while await store.extend(lease.key, lease.epoch, seconds=5):
        await sleep(1.5)  # three tries before the end
```

| who | may |
| --- | --- |
| the owner | write |
| the others | read |

1. One more thing
2. and the last.

"""

WATCH_SHIFTS = """() => {
    window.shifts = [];
    new PerformanceObserver((list) => {
        for (const each of list.getEntries()) if (!each.hadRecentInput) window.shifts.push({
            value: each.value,
            moved: each.sources.map(({ node }) => (node?.outerHTML ?? node?.data)?.slice(0, 90)),
        });
    }).observe({ type: 'layout-shift' });
}"""

SHIFTS = "() => new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(window.shifts))))"


def shifted(page: Page) -> float:
    """Return the layout shift since the recording began, as defined by https://wicg.github.io/layout-instability/."""
    shifts: list[dict[str, object]] = page.evaluate(SHIFTS)
    total = sum(float(str(each["value"])) for each in shifts)
    print(f"layout shift: {total:.4f}", json.dumps(shifts, indent=1))
    return total


@pytest.mark.parametrize("size", [{"width": 1280, "height": 720}, PHONE], ids=["desk", "phone"])
def test_nothing_jumps_while_an_answer_with_code_tables_and_tools_streams(
    open_page: People, server: Harness, chat_id: str, size: dict[str, int]
) -> None:
    page = open_page(f"/c/{chat_id}", viewport=size)
    ask(page, "Hello")
    page.evaluate(WATCH_SHIFTS)
    server.message(chat_id, ANSWER * 3, params={"model": "demo/echo?rate=100"})
    answered(page, 4)
    expect(page.locator("figure")).to_have_count(3)
    assert shifted(page) <= SHIFT_MAX

    server.message(chat_id, call("calculator", expression="6 * 7"))
    answered(page, 6)
    server.message(chat_id, call("send_mail", to="mara", text="line\n" * 8))
    expect(question(page, "send_mail")).to_be_visible()
    server.command(chat_id, "abort")
    answered(page, 8)
    assert shifted(page) <= SHIFT_MAX


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [{"width": 1280, "height": 800}, PHONE], ids=["desk", "phone"])
def test_axe_finds_nothing_serious_in_any_panel(
    open_page: People, server: Harness, chat_id: str, scheme: str, size: dict[str, int]
) -> None:
    page = open_page(f"/c/{chat_id}", viewport=size, color_scheme=scheme, reduced_motion="reduce")
    shown = f"phone{'-dark' * (scheme == 'dark')}" if size == PHONE else scheme
    found: dict[str, list[str]] = {}

    def look(what: str) -> None:
        found[what] = violations(page)
        open_page.shoot(page, f"panel-{what}-{shown}")

    server.message(chat_id, ANSWER, params={"model": "demo/echo?rate=0"})
    answered(page)
    look("answer")
    say(page, call("propose_article", title="Leases", body="One.\nTwo."))
    expect(page.get_by_role("region", name="Waiting for you")).to_be_visible()
    look("proposal")
    waiting = page.get_by_role("region", name="Waiting for you")
    card, apply = (
        waiting.get_by_role("group").bounding_box(),
        waiting.get_by_role("button", name="Apply").bounding_box(),
    )
    assert card is not None and apply is not None
    assert size == PHONE or card["x"] + card["width"] - apply["x"] - apply["width"] < 30, "decisions stand at the edge"
    page.get_by_role("region", name="Waiting for you").get_by_role("button", name="Apply").click()
    expect(page.locator("section[data-approval=committed]")).to_be_visible()
    server.at_rest(chat_id, 6)
    say(page, call("send_mail", to="mara", text="Dear Mara,\n\nthe parcel is here."))
    expect(question(page, "send_mail")).to_be_visible()
    page.locator("[data-tool=send_mail] summary").click()
    look("approval")
    question(page, "send_mail").get_by_role("button", name="Edit…").click()
    look("approval-edited")
    page.keyboard.press("Escape")
    open_drawer(page)
    look("drawer-beside-approval")
    page.get_by_role("button", name="Close the drawer").click()
    question(page, "send_mail").get_by_role("button", name="Deny", exact=True).click()
    server.at_rest(chat_id, 10)
    if size == PHONE:
        page.get_by_role("button", name="Chats", exact=True).click()
        expect(page.get_by_role("navigation", name="Chats")).to_be_visible()
        look("chats")
    page.get_by_role("button", name="Settings").click()
    settings = page.get_by_role("dialog")
    expect(settings).to_be_visible()
    for tab in settings.get_by_role("tab").all():
        tab.click()
        look(f"settings-{(tab.inner_text()).lower().replace(' ', '-')}")
    assert not any(found.values()), json.dumps(found, indent=1)
