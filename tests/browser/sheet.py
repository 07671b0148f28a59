"""Makes a sheet of pictures that shows each promise of the page and names the test that checks it.

For each point, `POINTS` names the tests that check the point, and the pictures that these tests store in
`build/screens`, each in light, in dark and on a phone: `NAME-light.png`, `NAME-dark.png`, `NAME-phone.png` (`LOOKS`). A
picture `NAME-before.png`, made by hand from an older page, is shown beside these pictures. `python -m
tests.browser.sheet` writes `sheet.html` and, where there is a Chromium, one `sheet-GROUP.png` for each group, and
prints the names of missing pictures. If a picture is missing, it exits with 1.
"""

import sys
from collections.abc import Collection
from html import escape
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from tests.browser.chromium import launched_chromium
from tests.browser.harness import LOOKS
from tests.conftest import SCREENS

__all__ = ["POINTS", "Point", "html_of", "missing"]


class Point(NamedTuple):
    """A feature that a person can see or use."""

    group: str
    says: str
    tests: tuple[str, ...]
    """`file::words` without `test_`: `waiting::next_waits` names the test of `test_waiting.py` whose name begins with
    `next_waits`."""
    pictures: tuple[str, ...]
    """The names of the pictures, without the ending for the look."""


POINTS = (
    Point(
        "styles",
        "Long code keeps its height when tool cards and other parts are loaded",
        ("styles::long_code_keeps_its_height", "styles::loading_all_that_can_be_loaded"),
        ("code-after-a-tool-card",),
    ),
    Point(
        "queue",
        "Long words never push the buttons of a waiting message out of sight",
        ("waiting::long_words_of_any_script", "waiting::a_hundred_rows"),
        ("queue-long-words", "queue-of-a-hundred"),
    ),
    Point(
        "queue",
        "A message goes next, after the step that runs",
        ("waiting::next_waits_for_the_step", "composer::what_waits_is_listed"),
        ("next-or-stop-and-send",),
    ),
    Point(
        "queue",
        "A message stops the answer, keeps what was said, and goes first",
        (
            "waiting::stop_and_send_ends",
            "waiting::a_waiting_row_is_sent_at_once",
            "waiting::an_old_message_that_is_written_anew_stops",
            "waiting::the_list_of_keys",
        ),
        ("stopped-and-sent", "rewriting-in-the-message", "rewriting-in-the-composer", "keys"),
    ),
    Point(
        "sign-in",
        "A screen says what is wanted and what is wrong, and there is no raw error beside it",
        ("sign_in::the_screen_says_what_is_wanted", "sign_in::the_screen_and_the_name"),
        ("sign-in", "sign-in-wrong-token"),
    ),
    Point(
        "sign-in",
        "All tabs are signed in, also those of a Ctrl-click and of a pasted address",
        ("sign_in::all_tabs_of_a_browser",),
        ("signed-in-by-a-pasted-address",),
    ),
    Point("sign-in", "The name and Sign out are in sight", ("sign_in::the_screen_and_the_name",), ("signed-in",)),
    Point("sign-in", "Who signs out is asked about what is not sent", ("sign_in::sign_out_asks",), ("sign-out-asks",)),
    Point(
        "sign-in",
        "A session that ends is taken up where it was",
        ("sign_in::a_session_that_ends", "sign_in::a_token_that_is_taken_back"),
        ("sign-in-again",),
    ),
    Point(
        "sign-in",
        "A link for somebody else asks first",
        ("sign_in::a_link_for_somebody_else",),
        ("sign-in-instead",),
    ),
    Point(
        "poor browsers",
        "A browser that keeps nothing shows the page and says so",
        ("poor_browsers::a_browser_that_keeps_nothing",),
        ("storage-blocked", "storage-full"),
    ),
    Point(
        "poor browsers",
        "Tabs whose worker fails share the connection of one of them",
        ("poor_browsers::tabs_whose_worker_fails", "poor_browsers::tabs_whose_worker_is_ended"),
        ("worker-missing",),
    ),
    Point(
        "poor browsers",
        "Of more chats than a stream carries none is refused",
        ("poor_browsers::of_more_chats",),
        ("chats-beyond-a-stream",),
    ),
    Point(
        "following",
        "The end stays in sight when a question opens above the composer",
        (
            "following::panels_that_open_and_close",
            "following::the_end_stays_in_sight",
            "following::whoever_leaves_the_end",
            "following::a_finger_leaves",
            "following::the_dragged_scroll_bar",
        ),
        ("end-followed-past-a-question",),
    ),
    Point(
        "past",
        "The past shows a tool as it was, and says which time that is",
        ("tools::the_past_shows_a_tool", "failures::time_travel_shows"),
        ("past-of-a-tool", "past-failure"),
    ),
    Point(
        "line",
        "A silent line is not called live, and says for how long it has been silent",
        ("ends::a_silent_line", "ends::a_message_that_is_answered"),
        ("silent-line-chat", "silent-line-start"),
    ),
    Point(
        "line",
        "A page without a line says when it tries again",
        ("ends::the_chat_and_the_start_page", "ends::try_now_tries"),
        ("offline-chat", "offline-start"),
    ),
    Point(
        "line",
        "A message held offline can be taken back or written anew",
        ("waiting::held_messages_are_taken_back", "waiting::a_message_that_had_got_through"),
        ("held-offline", "held-taken-back"),
    ),
    Point(
        "failures",
        "A broken answer has one box and one Retry",
        ("failures::a_broken_answer_has_one_box",),
        ("failure-broken-off",),
    ),
    Point(
        "failures",
        "A failure says its cause, and stays with its question",
        ("failures::a_refused_question", "failures::a_limit_says"),
        ("failure-refused", "failure-after-the-next-message", "failure-limit"),
    ),
    Point(
        "failures",
        "A Retry that comes to nothing leads back",
        ("ways_back::a_retry_of_an_older_failure", "ways_back::an_answer_whose_regeneration"),
        ("way-back-to-what-followed", "way-back-to-an-answer-failed", "way-back-to-an-answer-stopped"),
    ),
    Point(
        "failures",
        "Stop before the first word leaves a Retry",
        ("failures::stop_before_the_first_word",),
        ("stopped-before-a-word",),
    ),
    Point(
        "failures",
        "What a run tells beside its answer is a notice",
        ("failures::a_mode_that_this_server",),
        ("mode-unknown",),
    ),
    Point(
        "messages",
        "Errors of attachments name their files, merge, and go with the message",
        (
            "attachments::errors_name_their_files",
            "attachments::a_file_that_failed",
            "attachments::a_folder_is_refused",
        ),
        ("attachment-errors",),
    ),
    Point(
        "messages",
        "A tool's name is cut only where there is no room for it",
        ("tools::a_name_is_cut_only",),
        ("long-name-of-a-tool",),
    ),
    Point(
        "messages",
        "A chat that was deleted elsewhere takes no more, and what was being written is kept",
        ("ends::a_chat_that_was_deleted", "ends::an_address_that_no_chat"),
        ("deleted-elsewhere", "no-such-address"),
    ),
    Point(
        "messages",
        "Text runs the way of its language",
        ("right_to_left::each_block", "right_to_left::a_title_and_a_waiting"),
        ("right-to-left", "right-to-left-waiting"),
    ),
    Point(
        "messages",
        "How long a model thought is the same after a reload",
        ("failures::how_long_a_model_thought",),
        ("thought-after-a-reload",),
    ),
    Point(
        "answers",
        "Formulas are set, money and shells stay text",
        (
            "formulas::formulas_are_set",
            "formulas::a_wrong_formula",
            "formulas::what_sets_formulas",
            "formulas::a_streamed_formula",
        ),
        ("formulas", "formula-wrong"),
    ),
    Point(
        "answers",
        "Diagrams are drawn, and show their source on a press",
        (
            "diagrams::a_diagram_is_a_picture",
            "diagrams::a_wrong_diagram",
            "diagrams::a_hostile_diagram",
            "diagrams::a_streamed_diagram",
        ),
        ("diagrams", "diagram-source", "diagram-wrong"),
    ),
    Point(
        "answers",
        "Footnotes are numbered and lead to and fro",
        ("markdown::footnotes_are_numbered", "markdown::streamed_footnotes"),
        ("footnotes",),
    ),
    Point(
        "answers",
        "Folded parts hold Markdown and stay as the reader left them",
        ("markdown::folded_parts_hold",),
        ("folded-parts",),
    ),
    Point(
        "answers",
        "Code of every language is coloured",
        ("markdown::code_of_every_language",),
        ("languages",),
    ),
    Point(
        "answers",
        "All of it together keeps nobody out",
        ("markdown::everything_together",),
        ("markdown-of-every-kind",),
    ),
    Point(
        "agents",
        "The steps of a durable agent are quiet lines, which fold when it has ended",
        (
            "agent_steps::each_step_says",
            "agent_steps::earlier_steps_fold",
            "agent_steps::a_long_name_fits",
        ),
        ("steps-of-an-agent",),
    ),
    Point(
        "start",
        "The next chat has what was chosen last",
        ("start::what_was_chosen_last", "start::a_choice_in_an_open_chat", "start::what_is_not_offered"),
        ("choices-remembered", "choices-in-settings", "choices-dropped"),
    ),
    Point(
        "start",
        "Name, greeting and starters come from the assistant",
        ("start::an_assistant_says", "start::a_starter_may_have", "start::a_start_screen_that_is_higher"),
        ("assistant-greets", "assistant-answers", "starter-with-a-context"),
    ),
    Point(
        "start",
        "Demonstrations say that they are, and how to get a model",
        ("start::demonstrations_say",),
        ("demo-start", "demo-answer", "demo-how-to"),
    ),
    Point(
        "start",
        "Samplers have bounds, and say which model takes them",
        ("start::samplers_are_set",),
        ("samplers",),
    ),
    Point(
        "page_context",
        "A scope in the address is shown, sent, and can be taken away",
        ("page_context::a_scope_in_the_address", "page_context::an_address_that_names_no_place"),
        ("scope", "scope-of-no-place"),
    ),
    Point(
        "page_context",
        "A page of a named origin hands over its context, and a person may refuse it",
        (
            "page_context::a_page_of_a_named_origin",
            "page_context::a_person_takes_away",
            "page_context::a_page_of_another_origin",
            "page_context::a_stranger_who_opens",
        ),
        ("framed", "framed-details-not-sent"),
    ),
    Point(
        "examples",
        "Coding works from its start screen",
        ("examples::coding_works",),
        ("example-coding", "example-coding-editor", "example-coding-end"),
    ),
    Point(
        "examples",
        "Workflow works from its start screen",
        ("examples::workflow_works",),
        ("example-workflow", "example-workflow-proposal", "example-workflow-refused", "example-workflow-guide"),
    ),
    Point(
        "examples",
        "Help works from its start screen, and in the page of its library",
        ("examples::help_works", "examples::help_knows"),
        ("example-help", "example-help-page", "example-help-searched"),
    ),
    Point(
        "panels",
        "The screens and panels keep nobody out",
        ("drawer::axe_finds", "bars::axe_finds", "bars::nothing_jumps"),
        (
            "screen-start",
            "screen-chat",
            "screen-drawer",
            "screen-past",
            "panel-answer",
            "panel-proposal",
            "panel-approval",
            "panel-approval-edited",
            "panel-drawer-beside-approval",
            "panel-settings-answers",
        ),
    ),
)

STYLE = """
body { margin: 1.5rem; font: 15px/1.4 system-ui, sans-serif; background: #e9ecea; }
table { border-collapse: collapse; width: 100%; }
caption { text-align: left; font-size: 1.5rem; padding: 1rem 0; }
th, td { padding: 0.5rem; vertical-align: top; text-align: left; border-top: 1px solid #bcc5c0; }
tbody th { width: 15rem; font-weight: 400; }
small { display: block; overflow-wrap: anywhere; color: #555; }
img { max-width: 36rem; max-height: 36rem; border: 1px solid #bcc5c0; background: #fff; }
"""


def missing(names: Collection[str], points: Collection[Point] = POINTS) -> list[str]:
    """Return the points' pictures that are missing among these file names."""
    wanted = [f"{picture}-{look}.png" for point in points for picture in point.pictures for look in LOOKS]
    return [name for name in wanted if name not in names]


def html_of(names: Collection[str], points: Collection[Point] = POINTS) -> str:
    """Return the sheet as HTML, to be stored beside its pictures: a table for each group, a row for each picture."""
    head = "".join(f"<th>{column}</th>" for column in ("", "before", *LOOKS))
    tables = "\n".join(
        f"<table id='{escape(slug(group))}'><caption>{escape(group)}</caption><thead><tr>{head}</tr></thead><tbody>\n"
        + "\n".join(row(point, picture, names) for point in members for picture in point.pictures)
        + "\n</tbody></table>"
        for group, members in groupby(points, key=lambda point: point.group)
    )
    return f"<!doctype html><meta charset=utf-8><title>Pictures of the page</title><style>{STYLE}</style>\n{tables}\n"


def row(point: Point, picture: str, names: Collection[str]) -> str:
    files = {look: f"{picture}-{look}.png" for look in ("before", *LOOKS)}
    cells = "".join(
        f"<td><img src='{file}' alt='{file}'></td>"
        if file in names
        else f"<td>{'' if look == 'before' else f'missing: {file}'}</td>"
        for look, file in files.items()
    )
    tests = "".join(f"<small>{escape(test)}</small>" for test in point.tests)
    return f"<tr><th>{escape(point.says)}<small><b>{picture}</b></small>{tests}</th>{cells}</tr>"


def slug(group: str) -> str:
    return group.replace(" ", "-")


def main() -> int:
    names = {path.name for path in SCREENS.glob("*.png")}
    SCREENS.mkdir(parents=True, exist_ok=True)
    page = SCREENS / "sheet.html"
    page.write_text(html_of(names), "utf-8")
    print(page)
    try:
        with launched_chromium() as chromium:
            tab = chromium.new_page(viewport={"width": 2300, "height": 1200})
            tab.goto(page.as_uri())
            for group in dict.fromkeys(slug(point.group) for point in POINTS):
                picture: Path = SCREENS / f"sheet-{group}.png"
                tab.locator(f"#{group}").screenshot(path=picture)
                print(picture)
    except LookupError as none:
        print(f"no pictures of the sheet: {none}")
    gone = missing(names)
    for name in gone:
        print(f"missing: {name}")
    return 1 if gone else 0


if __name__ == "__main__":
    sys.exit(main())
