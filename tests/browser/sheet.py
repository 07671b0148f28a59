"""One page and one picture of all pictures of an issue: `python -m tests.browser.sheet [ISSUE]` (14 if not given).

Tests keep pictures in `build/screens` under names like `14-2-long-queued`, `14-2-long-queued-dark`,
`14-2-long-queued-phone`, `…-phone-dark` and `…-before`: issue, point, words, and how the page was shown. The sheet
has a row for each point and words, with a column for each of these. It is written beside the pictures as
`sheet-ISSUE.html` and, where there is a Chromium, as `sheet-ISSUE.png`.
"""

import re
import sys
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import NamedTuple

from tests.browser.chromium import launched_chromium
from tests.conftest import SCREENS

__all__ = ["Picture", "html_of", "pictures_of"]

COLUMNS = ("before", "light", "dark", "phone", "phone-dark")

NAME = re.compile(r"(?P<issue>\d+)-(?P<point>\d+)-(?P<what>[\w-]+?)(?:-(?P<shown>before|phone-dark|dark|phone))?$")

STYLE = """
body { margin: 1.5rem; font: 15px/1.4 system-ui, sans-serif; background: #e9ecea; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: 0.5rem; vertical-align: top; text-align: left; border-top: 1px solid #bcc5c0; }
tbody th { width: 9rem; }
img { max-width: 30rem; max-height: 36rem; border: 1px solid #bcc5c0; background: #fff; }
"""


class Picture(NamedTuple):
    point: int
    what: str
    shown: str
    """One of `COLUMNS`."""
    file: str


def pictures_of(issue: int, names: Iterable[str]) -> list[Picture]:
    """Those of the files that belong to the issue, by point, words and column; others are left out."""
    found: list[Picture] = []
    for name in names:
        parts = NAME.fullmatch(name.removesuffix(".png"))
        if parts and int(parts["issue"]) == issue:
            found.append(Picture(int(parts["point"]), parts["what"], parts["shown"] or "light", name))
    return sorted(found, key=lambda each: (each.point, each.what, COLUMNS.index(each.shown)))


def html_of(issue: int, pictures: Iterable[Picture]) -> str:
    rows: dict[tuple[int, str], dict[str, str]] = {}
    for each in pictures:
        rows.setdefault((each.point, each.what), {})[each.shown] = each.file
    head = "".join(f"<th>{column}</th>" for column in COLUMNS)
    body = "\n".join(
        f"<tr><th>{point}. {escape(what.replace('-', ' '))}</th>"
        + "".join(
            f"<td>{f'<img src={name!r} alt={name!r}>' if (name := row.get(column)) else ''}</td>" for column in COLUMNS
        )
        + "</tr>"
        for (point, what), row in rows.items()
    )
    return (
        f"<!doctype html><meta charset=utf-8><title>Pictures of {issue}</title><style>{STYLE}</style>\n"
        f"<table><thead><tr><th></th>{head}</tr></thead><tbody>\n{body}\n</tbody></table>\n"
    )


def main(issue: int) -> Path:
    names = [path.name for path in SCREENS.glob(f"{issue}-*.png")]
    page = SCREENS / f"sheet-{issue}.html"
    page.write_text(html_of(issue, pictures_of(issue, names)))
    try:
        with launched_chromium() as chromium:
            tab = chromium.new_page(viewport={"width": 2000, "height": 1200})
            tab.goto(page.as_uri())
            tab.wait_for_load_state("load")
            tab.screenshot(path=page.with_suffix(".png"), full_page=True)
    except LookupError as missing:
        print(f"no picture of the sheet: {missing}")
    return page


if __name__ == "__main__":
    print(main(int(sys.argv[1]) if len(sys.argv) > 1 else 14))
