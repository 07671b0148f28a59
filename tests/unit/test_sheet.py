"""The sheet of pictures: which pictures belong to it, and in which order."""

from tests.browser.sheet import html_of, pictures_of


def test_pictures_of_an_issue_stand_by_point_and_words_in_the_columns_of_the_sheet() -> None:
    names = [
        "14-2-queue-phone.png",
        "14-2-queue-phone-dark.png",
        "14-2-queue.png",
        "14-10-math.png",
        "13-2-queue.png",
        "14-2-queue-before.png",
        "x.png",
    ]
    found = pictures_of(14, names)
    assert [(each.point, each.what, each.shown) for each in found] == [
        (2, "queue", "before"),
        (2, "queue", "light"),
        (2, "queue", "phone"),
        (2, "queue", "phone-dark"),
        (10, "math", "light"),
    ]
    page = html_of(14, found)
    assert page.index("14-2-queue-before.png") < page.index("14-2-queue.png") < page.index("14-10-math.png")
    assert page.count("<tr>") == 3
    assert "<td></td><td><img src='14-10-math.png'" in page
