"""Tools in the page: cards with their state, questions that any tab may answer, previews, and suggestions.

The model is `demo/tools`, which makes the calls in the user's message; for suggestions the model is a script. Both
models run on a real server, and the tests check the decisions on the server, not in the page.
"""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.harness import SCREEN_MS, Harness, People, say, wait_until
from threadcast_protocol.wire.messages import JsonObject

APP = Path(__file__).with_name("tools_of_test_tools.py")

SCENES = Path(__file__).with_name("scenes_of_test_tools.toml")

CONFIG = f"""
[models]
default = "demo/tools?rate=0"

[models.providers.script]
kind = "script"
file = "{SCENES}"

[profiles.agent]
actions = [
    {{ action = "start_over", label = "Start over", handler = "server" }},
    {{ action = "open_it", label = "Open it" }},
]
"""


def call(name: str, **arguments: object) -> str:
    return f"call {name} {json.dumps(arguments)}"


def card(page: Page, tool: str) -> Locator:
    return page.locator(f'[data-tool="{tool}"]')


def question(page: Page, tool: str) -> Locator:
    return page.get_by_role("group", name=re.compile(f"^{tool} wants to run"))


def ends(page: Page, tool: str, state: str) -> None:
    expect(card(page, tool)).to_have_attribute("data-state", state, timeout=SCREEN_MS)


def result_of(chat: JsonObject) -> JsonObject:
    found: JsonObject = [message for message in chat["messages"] if message["role"] == "tool"][-1]
    return found


def test_a_question_answered_in_one_tab_is_gone_from_every_other(
    open_page: People, server: Harness, chat_id: str
) -> None:
    ann, bob = open_page(f"/c/{chat_id}"), open_page(f"/c/{chat_id}", person="bob")
    say(ann, call("send_mail", to="mara"))
    for tab in (ann, bob):
        expect(question(tab, "send_mail")).to_be_visible(timeout=SCREEN_MS)
        ends(tab, "send_mail", "asking")
    question(bob, "send_mail").get_by_role("button", name="Allow", exact=True).click()
    for tab in (ann, bob):
        expect(question(tab, "send_mail")).to_have_count(0, timeout=SCREEN_MS)
        ends(tab, "send_mail", "done")
    assert result_of(server.at_rest(chat_id, 4))["content"] == "sent to mara"


def test_what_is_always_allowed_is_asked_about_once(open_page: People, server: Harness, chat_id: str) -> None:
    page = open_page(f"/c/{chat_id}")
    say(page, call("send_mail", to="mara"))
    question(page, "send_mail").get_by_role("button", name="Always allow").click()
    server.at_rest(chat_id, 4)
    say(page, call("send_mail", to="jonas"))
    assert result_of(server.at_rest(chat_id, 8))["content"] == "sent to jonas"
    expect(question(page, "send_mail")).to_have_count(0)


def test_a_denial_with_a_note_reaches_the_model(open_page: People, server: Harness, chat_id: str) -> None:
    page = open_page(f"/c/{chat_id}")
    say(page, call("send_mail", to="everybody"))
    asked = question(page, "send_mail")
    asked.get_by_role("button", name="Deny with a note").click()
    note = asked.get_by_label("Note to the model")
    expect(note).to_be_focused()
    note.press("Escape")
    expect(asked.get_by_role("button", name="Allow", exact=True)).to_be_visible()
    asked.get_by_role("button", name="Deny with a note").click()
    note.fill("Mara alone, please")
    note.press("Enter")
    ends(page, "send_mail", "denied")
    chat = server.at_rest(chat_id, 4)
    assert result_of(chat)["content"] == "The call was denied by user. Note: Mara alone, please"
    assert "Mara alone, please" in chat["messages"][-1]["content"]  # the demo repeats the results of its tools


def test_a_call_runs_with_the_arguments_that_a_person_has_edited(
    open_page: People, server: Harness, chat_id: str
) -> None:
    page = open_page(f"/c/{chat_id}")
    say(page, call("send_mail", to="everybody"))
    asked = question(page, "send_mail")
    asked.get_by_role("button", name="Edit…").click()
    box = asked.get_by_label("Arguments, as JSON")
    expect(box).to_be_focused()
    original = box.input_value()
    box.fill('{"to": }')
    expect(asked.get_by_text("This is not JSON (line 1)")).to_be_visible()
    expect(asked.get_by_role("button", name="Allow with these")).to_be_disabled()
    asked.get_by_role("button", name="Original").click()
    expect(box).to_have_value(original)
    box.fill('{"to": "mara"}')
    asked.get_by_role("button", name="Allow with these").click()
    ends(page, "send_mail", "done")
    assert result_of(server.at_rest(chat_id, 4))["content"] == "sent to mara"


def test_several_questions_are_answered_at_once(open_page: People, server: Harness, chat_id: str) -> None:
    page = open_page(f"/c/{chat_id}")
    server.message(chat_id, "\n".join([call("send_mail", to="mara"), call("send_parcel", to="jonas")]))
    expect(question(page, "send_parcel")).to_be_visible(timeout=SCREEN_MS)
    page.get_by_role("button", name="Allow all").click()
    for tool in ("send_mail", "send_parcel"):
        ends(page, tool, "done")


def test_a_decision_that_is_refused_gives_the_question_back(open_page: People, server: Harness, chat_id: str) -> None:
    page = open_page(f"/c/{chat_id}")
    say(page, call("send_mail", to="mara"))
    allow = question(page, "send_mail").get_by_role("button", name="Allow", exact=True)
    expect(allow).to_be_visible(timeout=SCREEN_MS)
    open_page.expect_complaint("403")

    def refuse(route: object) -> None:
        body = json.dumps({"detail": "this token may not approve tool calls", "code": "forbidden"})
        route.fulfill(status=403, content_type="application/json", body=body)  # type: ignore[attr-defined] # a Route

    page.context.route("**/commands", refuse)
    allow.click()
    expect(question(page, "send_mail").get_by_role("alert")).to_contain_text("may not approve", timeout=SCREEN_MS)
    expect(allow).to_be_enabled()
    page.context.unroute("**/commands")
    allow.click()
    ends(page, "send_mail", "done")


def test_how_far_a_tool_is_can_be_watched(open_page: People, server: Harness, chat_id: str, tmp_path: Path) -> None:
    page = open_page(f"/c/{chat_id}")
    say(page, call("index_pages", go_on=str(tmp_path / "go")))
    running = card(page, "index_pages")
    expect(running).to_contain_text("reading page 1 of 4 · 25 %", timeout=SCREEN_MS)
    expect(running.get_by_role("progressbar")).to_have_js_property("value", 0.25)
    late = open_page(f"/c/{chat_id}", person="bob")
    expect(card(late, "index_pages")).to_contain_text("25 %", timeout=SCREEN_MS)
    (tmp_path / "go").touch()
    for tab in (page, late):
        ends(tab, "index_pages", "done")
        expect(card(tab, "index_pages").get_by_role("progressbar")).to_have_count(0)
    running.locator("summary").click()
    expect(running).to_contain_text("4 pages")


def test_a_proposal_is_saved_when_it_is_applied_and_only_then(open_page: People, server: Harness, chat_id: str) -> None:
    page = open_page(f"/c/{chat_id}")
    body = "\n".join(f"line {number}" for number in range(1, 5))
    say(page, call("propose_article", title="Leases", body=body))
    proposal = page.locator("section[data-approval]")
    expect(proposal).to_contain_text("line 4", timeout=SCREEN_MS)
    proposal.get_by_role("button", name="Discard", exact=True).click()
    expect(proposal).to_have_attribute("data-approval", "rejected", timeout=SCREEN_MS)
    server.at_rest(chat_id, 4)

    say(page, call("propose_article", title="Leases", body=body.replace("line 2", "LINE 2")))
    second = proposal.nth(1)
    expect(second.locator("[data-kind=removed]")).to_have_text(re.compile("- line 2"), timeout=SCREEN_MS)
    expect(second.locator("[data-kind=added]")).to_have_text(re.compile(r"\+ LINE 2"))
    page.get_by_role("region", name="Waiting for you").get_by_role("button", name="Apply").click()
    expect(second).to_have_attribute("data-approval", "committed", timeout=SCREEN_MS)
    approvals = [payload["approval"] for payload in server.chat(chat_id)["payloads"]]
    assert approvals == ["rejected", "committed"]
    expect(page.get_by_role("region", name="Waiting for you")).to_have_count(0)


def test_a_round_limit_asks_and_the_run_goes_on(open_page: People, server: Harness, chat_id: str) -> None:
    params = {"max_rounds": 1, "on_limit": "ask"}
    server.command(chat_id, "set_params", patch=params)
    page = open_page(f"/c/{chat_id}")
    server.message(chat_id, call("calculator", expression="6 * 7"), params=params)
    page.get_by_role("button", name=re.compile("Continue")).click()
    expect(page.locator("article").get_by_text("The tools have answered.")).to_be_visible(timeout=SCREEN_MS)
    assert server.at_rest(chat_id, 4)["runtime"]["outcome"] == "complete"


def test_a_run_at_its_limit_may_end_with_a_summary(open_page: People, server: Harness, chat_id: str) -> None:
    page = open_page(f"/c/{chat_id}")
    server.message(chat_id, call("calculator", expression="6 * 7"), params={"max_rounds": 1, "on_limit": "ask"})
    page.get_by_role("button", name="Finish with a summary").click()
    expect(page.locator("article").get_by_text("Summarize what you have found so far")).to_be_visible(timeout=SCREEN_MS)
    chat = server.at_rest(chat_id, 5)
    assert [message["role"] for message in chat["messages"][2:]] == ["tool", "user", "assistant"]
    assert "tool_calls" not in chat["messages"][-1]


def test_a_chat_below_says_what_it_waits_for_and_can_be_visited(
    open_page: People, server: Harness, chat_id: str
) -> None:
    page = open_page(f"/c/{chat_id}")
    say(page, call("delegate", task=call("send_mail", to="mara"), title="the mail"))
    below = card(page, "delegate").locator("[data-subchat]")
    expect(below).to_contain_text("needs your decision", timeout=SCREEN_MS)
    late = open_page(f"/c/{chat_id}", person="bob")
    expect(card(late, "delegate").locator("[data-subchat]")).to_contain_text("needs your decision", timeout=SCREEN_MS)
    below.get_by_role("link", name="the mail").click()
    question(page, "send_mail").get_by_role("button", name="Allow", exact=True).click()
    ends(page, "send_mail", "done")
    page.go_back()
    ends(page, "delegate", "done")
    for tab in (page, late):
        link = card(tab, "delegate").locator("[data-subchat]").get_by_role("link")
        expect(link).to_have_attribute("href", re.compile("/c/sub"))
    assert "sent to mara" in result_of(server.at_rest(chat_id, 4))["content"]


def test_an_agent_in_the_background_is_shown_until_it_has_ended(
    open_page: People, server: Harness, chat_id: str
) -> None:
    page = open_page(f"/c/{chat_id}")
    say(page, call("start_agent", task=call("send_mail", to="mara"), title="the agent"))
    running = page.get_by_role("list", name="In the background")
    expect(running.get_by_role("link", name="the agent")).to_be_visible(timeout=SCREEN_MS)
    agent_id = server.at_rest(chat_id, 4)["background_agents"][0]["id"]
    server.command(agent_id, "abort")
    expect(running).to_have_count(0, timeout=SCREEN_MS)
    expect(card(page, "start_agent").locator("[data-subchat]")).to_contain_text("aborted", timeout=SCREEN_MS)


def test_a_suggestion_is_what_the_user_says_next(open_page: People, server: Harness, chat_id: str) -> None:
    server.command(chat_id, "set_params", patch={"model": "script/script"})
    page = open_page(f"/c/{chat_id}")
    say(page, "Begin")
    page.evaluate(
        "addEventListener('threadcast:action', (e) => { window.heard = e.detail.action; e.preventDefault(); })"
    )
    page.get_by_role("button", name="Open it").click()
    assert page.evaluate("window.heard") == "open_it"
    page.get_by_role("button", name="A tale").click()
    expect(page.locator("article").get_by_text("Once upon a time.")).to_be_visible(timeout=SCREEN_MS)
    expect(page.get_by_role("group", name="Suggestions")).to_have_count(0)
    asked = server.at_rest(chat_id, 4)["messages"][2]
    assert asked["content"] == "Tell me a tale"
    assert asked["interaction"]["type"] == "value_selected"


def test_an_action_of_the_server_is_a_message_that_names_it(open_page: People, server: Harness, chat_id: str) -> None:
    server.command(chat_id, "set_params", patch={"model": "script/script"})
    page = open_page(f"/c/{chat_id}")
    say(page, "Begin")
    page.get_by_role("button", name="Start over").click()
    asked = wait_until(lambda: (server.chat(chat_id)["messages"] or [])[2:3], "the action's message")[0]
    assert (asked["content"], asked["interaction"]["action"]) == ("Start over", "start_over")


def test_the_past_shows_a_tool_as_it_was_and_says_which_time_that_is(
    open_page: People, server: Harness, chat_id: str, tmp_path: Path
) -> None:
    page = open_page(f"/c/{chat_id}")
    say(page, call("send_mail", to="mara"))
    question(page, "send_mail").get_by_role("button", name="Allow", exact=True).click()
    ends(page, "send_mail", "done")
    server.at_rest(chat_id, 4)
    say(page, call("index_pages", go_on=str(tmp_path / "go on")))
    expect(card(page, "index_pages").get_by_text("reading page 1 of 4")).to_be_visible()
    (tmp_path / "go on").touch()
    server.at_rest(chat_id, 8)

    standing = page.locator("main > header").get_by_role("status")
    expect(standing).to_have_text("live")
    page.get_by_role("button", name="Time travel").click()
    slider = page.get_by_role("slider", name="Position")
    slider.press("Home")
    found: dict[str, set[str]] = {"send_mail": set(), "index_pages": set()}
    last, is_running, is_shot = int(slider.get_attribute("max") or 0), False, False
    for position in range(last + 1):
        expect(page.get_by_text(f"As it was at position {position} of {last}")).to_be_visible()
        expect(standing).to_have_text(re.compile(r"^past, (\d\d:\d\d|before the first message)"))
        for tool, states in found.items():
            if card(page, tool).count():
                states.add(now := card(page, tool).get_attribute("data-state") or "")
                is_running = is_running or (tool, now) == ("index_pages", "running")
        if is_running and not is_shot:
            open_page.shoot_looks(page, "past-of-a-tool")
            slider.focus()
            is_shot = True
        slider.press("ArrowRight")
    assert found["send_mail"] >= {"asking", "done"} and found["index_pages"] >= {"running", "done"}
    assert "interrupted" not in found["send_mail"] | found["index_pages"]
    page.get_by_role("button", name="Return to the present").click()
    expect(standing).to_have_text("live")


@pytest.mark.parametrize("width", [1280, 390])
def test_a_name_is_cut_only_where_there_is_no_room_for_it(
    open_page: People, server: Harness, chat_id: str, width: int
) -> None:
    page = open_page(f"/c/{chat_id}", viewport={"width": width, "height": 844})
    name = "send_invoice_with_line_items_to_customer_and_accountant"
    say(page, call(name))
    ends(page, name, "asking")
    if width > 700:
        open_page.shoot_looks(page, "long-name-of-a-tool")
    words = card(page, name).locator("summary b")
    cut = "(b) => b.scrollWidth - b.clientWidth"
    free = """(b) => b.parentElement.clientWidth
        - [...b.parentElement.children].reduce((sum, each) => sum + each.offsetWidth, 0)"""
    assert words.evaluate(cut) <= 0 if width > 700 else words.evaluate(free) < 60
    panel, composer = question(page, name).bounding_box(), page.locator("form").last.bounding_box()
    assert panel is not None and composer is not None and panel["width"] > 0.9 * min(composer["width"], 736)
    said = question(page, name).locator("b")
    assert said.evaluate(cut) <= 0 and said.evaluate("(b) => b.getBoundingClientRect().right") <= width
    question(page, name).get_by_role("button", name="Deny", exact=True).click()
    server.at_rest(chat_id, 4)
