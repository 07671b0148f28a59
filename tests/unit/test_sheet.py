"""The sheet of pictures: its items name existing tests and pictures that these tests save."""

import re
from itertools import chain

import pytest

from tests.browser.harness import LOOKS
from tests.browser.sheet import POINTS, Point, html_of, missing
from tests.support.server import ROOT

BROWSER = ROOT / "tests" / "browser"

QUEUE = Point("queue", "Rows keep <their> buttons", ("waiting::long_words",), ("queue-long-words", "queue-full"))

SHOT = re.compile(r"""shoot(?:_looks)?\(\w+(?:\[\d\])?, f?"([^"]+)\"""")


def source(test: str) -> str:
    return (BROWSER / f"test_{test.partition('::')[0]}.py").read_text("utf-8")


@pytest.mark.parametrize("test", sorted(set(chain.from_iterable(point.tests for point in POINTS))))
def test_each_test_of_the_sheet_exists_and_is_the_only_one_of_its_words(test: str) -> None:
    assert source(test).count(f"\ndef test_{test.partition('::')[2]}") == 1


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.pictures[0])
def test_each_picture_of_the_sheet_is_kept_by_the_tests_of_its_point(point: Point) -> None:
    kept = [name for test in point.tests for name in SHOT.findall(source(test))]
    ways = [re.sub(r"\\\{[^}]+\}", r"[\\w-]+", re.escape(name)) for name in kept]
    for picture in point.pictures:
        assert any(re.fullmatch(way, shot) for way in ways for shot in (picture, f"{picture}-light")), picture


def test_pictures_that_nobody_kept_are_named_and_the_others_stand_in_their_columns() -> None:
    names = {f"queue-long-words-{look}.png" for look in LOOKS} | {"queue-full-before.png", "queue-full-dark.png"}
    assert missing(names, [QUEUE]) == ["queue-full-light.png", "queue-full-phone.png"]
    page = html_of(names, [QUEUE])
    assert page.count("<tr>") == 3 and page.count("<img") == 5
    assert "Rows keep &lt;their&gt; buttons" in page
    order = [page.index(f"{'missing: ' * (look in 'light phone')}queue-full-{look}.png") for look in ("before", *LOOKS)]
    assert order == sorted(order)


def test_a_sheet_without_a_picture_names_them_all() -> None:
    assert len(missing(())) == len(LOOKS) * sum(len(point.pictures) for point in POINTS)
