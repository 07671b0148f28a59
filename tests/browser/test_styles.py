"""Parts of the page that are loaded later do not change the look of elements that are already shown.

`tests/unit/test_page_styles.py` checks that the sources use CSS Modules. The tests of this file load, beside an answer,
every script and style sheet that the built page can load later, and compare each element's box and computed styles.
"""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.harness import Harness, People, say
from tests.browser.test_tools import APP, CONFIG, call, ends, question
from tests.web.sizes import STATIC_IMPORT, first_files, page_files

__all__ = ["APP", "CONFIG"]

DYNAMIC_IMPORT = re.compile(r"""\bimport\(\s*[`"']\./([\w.-]+\.js)[`"']""")

CODE = "\n".join(f"def line_{number}(x: int) -> int:  # {'a long comment ' * 12}" for number in range(40))

REFERENCE = f"""# Heading one

A paragraph with `code`, **bold**, a [link](https://example.org/) and ![a picture](https://example.org/a.png).

## Heading two

- a list
  1. in a list
- [x] a task

> A quotation
> of two lines

| Column | Another |
| --- | ---: |
| `cell` | 12 |

```python
{CODE}
```

- code in a list:

  ```sql
  select 1
  ```

---

The end.
"""

LOAD_SHEET = """(href) => new Promise((done, failed) => {
    const link = Object.assign(document.createElement('link'), {rel: 'stylesheet', href});
    link.onload = done;
    link.onerror = () => failed(new Error(href));
    document.head.append(link);
})"""

LOOK = """() => {
    window.looked = [...document.querySelectorAll('#app *')].map((element) => {
        const { x, y, width, height } = element.getBoundingClientRect();
        const styles = getComputedStyle(element);
        const values = new Map([['box', [x, y, width, height].join(' ')]]);
        for (const name of styles) values.set(name, styles.getPropertyValue(name));
        return { element, values };
    });
    return window.looked.length;
}"""
"""Remembers the box and the computed styles of every element; returns their number."""

CHANGES = f"""() => {{
    const before = window.looked;
    ({LOOK})();
    const come = window.looked.filter(({{ element }}) => !before.some((each) => each.element === element));
    const gone = before.filter(({{ element }}) => !element.isConnected);
    if (come.length + gone.length) {{
        const named = (all) => all.map(({{ element }}) => element.outerHTML.slice(0, 99));
        return [...named(come).map((each) => 'came: ' + each), ...named(gone).map((each) => 'went: ' + each)];
    }}
    return before.flatMap(({{ element, values }}, at) => {{
        const after = window.looked[at];
        if (after.element !== element) return ['another element: ' + after.element.outerHTML.slice(0, 99)];
        const changed = [...values].filter(([name, value]) => value !== after.values.get(name));
        const what = element.outerHTML.slice(0, 99);
        return changed.map(([name, value]) => `${{what}}: ${{name}}: ${{value}} → ${{after.values.get(name)}}`);
    }});
}}"""


def later_scripts() -> set[str]:
    """The names of all chunks that the page imports later, and of the chunks that these import.

    The chunks of `diagram.html` are not included, because diagrams are drawn in a separate document.
    """
    scripts = {path.name: path.read_text("utf-8") for path in page_files() if path.suffix == ".js"}
    later: set[str] = set()
    wanted, seen = [path.name for path in first_files() if path.suffix == ".js"], set[str]()
    while wanted:
        name = wanted.pop()
        if name in seen:
            continue
        seen.add(name)
        later |= (dynamic := set(DYNAMIC_IMPORT.findall(scripts[name])))
        wanted += [*dynamic, *STATIC_IMPORT.findall(scripts[name])]
    return later


def later_sheets() -> list[str]:
    return [path.name for path in page_files() if path.suffix == ".css" and path not in first_files()]


@pytest.mark.parametrize("is_reversed", [False, True], ids=["in order", "reversed"])
def test_loading_all_that_can_be_loaded_changes_nothing_of_an_answer(
    open_page: People, server: Harness, chat_id: str, is_reversed: bool
) -> None:
    said = [{"role": "user", "content": "Show everything"}, {"role": "assistant", "content": REFERENCE}]
    server.command(chat_id, "restore_messages", messages=said)
    server.at_rest(chat_id)
    page = open_page(f"/c/{chat_id}")
    expect(page.locator("figure code span").first).to_be_attached()  # the code has its colours
    assert page.evaluate(LOOK) > 100

    scripts, sheets = sorted(later_scripts(), reverse=is_reversed), sorted(later_sheets(), reverse=is_reversed)
    assert len(scripts) >= 10 and len(sheets) >= 4, "the build looks otherwise; find its chunks"
    page.evaluate("async (names) => { for (const name of names) await import(`/assets/${name}`); }", scripts)
    for name in sheets:
        page.evaluate(LOAD_SHEET, f"/assets/{name}")
    changed = page.evaluate(CHANGES)
    assert not changed, f"{len(changed)} changes:\n" + "\n".join(changed[:20])


def test_long_code_keeps_its_height_after_a_tool_was_asked_about(
    open_page: People, server: Harness, chat_id: str
) -> None:
    said = [{"role": "user", "content": "Show everything"}, {"role": "assistant", "content": REFERENCE}]
    server.command(chat_id, "restore_messages", messages=said)
    server.at_rest(chat_id)
    page = open_page(f"/c/{chat_id}")
    code = page.locator("figure").first
    before = height(page)
    assert before > 600
    say(page, call("send_mail", to="mara"))
    question(page, "send_mail").get_by_role("button", name="Allow", exact=True).click()
    ends(page, "send_mail", "done")
    page.locator("[data-tool=send_mail] summary").click()
    expect(page.get_by_text("sent to mara", exact=True)).to_be_visible()
    assert height(page) == before
    open_page.shoot_looks(page, "code-after-a-tool-card", at=code)


def height(page: Page) -> float:
    """The first block of code."""
    found: float = page.locator("figure").first.evaluate("figure => figure.getBoundingClientRect().height")
    return found
