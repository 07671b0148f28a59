"""The tools and texts of a chat: the tools of its scope for the caller's roles, and the profile's texts for the
scope."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.fake_tools import FakeTool
from tests.unit.pure_chat import PureChat, say
from threadcast.chat.scopes import Scope, is_within
from threadcast.profiles.payload_types import Action, PayloadType
from threadcast.profiles.profile import ChatTools, Profile, Profiles, ScopeTable
from threadcast.tools.traits import Traits
from threadcast_protocol.wire.principal import Principal

REPORTS, ARTICLES, SALES = ("reports",), ("reports", "articles"), ("sales",)
CHART, DRAFT = PayloadType(name="chart"), PayloadType(name="draft")

TOOLS = {
    tool.name: tool
    for tool in (
        FakeTool(name="clock"),
        FakeTool(name="erase", traits=Traits(required_role="editor")),
        FakeTool(name="get_payload"),
        FakeTool(name="publish", traits=Traits(scopes=(ARTICLES,), required_role="editor")),
        FakeTool(name="report", traits=Traits(scopes=(REPORTS, SALES))),
        FakeTool(name="save"),
        FakeTool(name="secret", policy="deny"),
    )
}


def offered(profile: Profile, scope: Scope = (), *roles: str, disabled: frozenset[str] = frozenset()) -> list[str]:
    return ChatTools(profile, TOOLS, disabled, "m", scope=scope, roles=frozenset(roles)).names


@pytest.mark.row("TOOL-5")
def test_tools_of_everywhere_and_of_the_place_are_offered_without_disabled_and_those_of_other_roles() -> None:
    plain = Profile(name="agent")
    assert offered(plain) == ["clock", "save", "secret"]
    assert offered(plain, REPORTS) == ["clock", "report", "save", "secret"]
    assert offered(plain, ARTICLES) == ["clock", "report", "save", "secret"]
    assert offered(plain, ARTICLES, "editor") == ["clock", "erase", "publish", "report", "save", "secret"]
    assert offered(plain, SALES, "reader") == ["clock", "report", "save", "secret"]
    assert offered(plain, ARTICLES, disabled=frozenset({"clock", "report"})) == ["save", "secret"]
    assert "secret" not in [spec.name for spec in ChatTools(plain, TOOLS, frozenset(), "m").specs()]


@pytest.mark.row("TOOL-5")
def test_a_tool_that_a_scope_names_is_offered_there_and_inside_and_nowhere_else() -> None:
    profile = Profile(name="p", scopes={REPORTS: ScopeTable(tools=["save"]), SALES: ScopeTable(tools=["publish"])})
    assert offered(profile) == ["clock", "secret"]
    assert offered(profile, REPORTS) == offered(profile, ARTICLES) == ["clock", "report", "save", "secret"]
    assert offered(profile, SALES, "editor") == ["clock", "erase", "publish", "report", "secret"]
    assert "publish" not in offered(profile, SALES), "a role is needed wherever a tool is offered"


@pytest.mark.row("TOOL-5")
def test_a_profiles_list_of_tools_is_all_there_is_besides_those_of_its_scopes() -> None:
    profile = Profile(name="p", tools=["clock", "report"], scopes={REPORTS: ScopeTable(tools=["save"])})
    assert offered(profile) == ["clock"]
    assert offered(profile, REPORTS) == ["clock", "report", "save"]


names = st.sampled_from("abc")
scope_tuples = st.lists(names, max_size=3).map(tuple)


def _traits(scopes: list[Scope], role: str) -> Traits:
    return Traits(scopes=tuple(scopes), required_role=role)


traits = st.tuples(st.lists(scope_tuples.filter(bool), max_size=2), st.sampled_from(["", "r"])).map(
    lambda t: _traits(*t)
)


@given(st.lists(traits, max_size=6), scope_tuples, st.booleans())
def test_the_selection_is_that_of_the_row_whatever_the_tools(
    wanted: list[Traits], scope: Scope, has_role: bool
) -> None:
    tools = {f"t{n}": FakeTool(name=f"t{n}", traits=each) for n, each in enumerate(wanted)}
    roles = frozenset({"r"} if has_role else ())
    found = ChatTools(Profile(name="p"), tools, frozenset(), "m", scope=scope, roles=roles).names
    expected = [
        name
        for name, tool in tools.items()
        if (not tool.traits.scopes or any(is_within(scope, place) for place in tool.traits.scopes))
        and (has_role or not tool.traits.required_role)
    ]
    assert found == expected


@pytest.mark.row("CTX-4")
def test_the_most_specific_scope_that_says_something_holds() -> None:
    profile = Profile(
        name="p",
        system_prompt="top",
        guidelines="top",
        highlight=["top"],
        custom_instructions="top",
        scopes={
            REPORTS: ScopeTable(system_prompt="reports", guidelines="reports", highlight=["reports"]),
            ARTICLES: ScopeTable(system_prompt="articles", guidelines=""),
        },
    )
    texts = {
        scope: (at.system_prompt, at.guidelines, at.highlight, at.custom_instructions)
        for scope in [(), REPORTS, ARTICLES, (*ARTICLES, "x"), SALES]
        for at in [profile.at(scope)]
    }
    top, reports, articles = (
        ("top", "top", ["top"], "top"),
        ("reports", "reports", ["reports"], "top"),
        ("articles", "", ["reports"], "top"),
    )
    assert texts == {(): top, REPORTS: reports, ARTICLES: articles, (*ARTICLES, "x"): articles, SALES: top}


def test_payload_types_and_actions_of_all_places_around_are_there() -> None:
    profile = Profile(
        name="p",
        payload_types={"chart": CHART},
        actions={"open": Action(action="open"), "close": Action(action="close")},
        scopes={
            ARTICLES: ScopeTable(payload_types={"draft": DRAFT}, actions={"open": Action(action="open", label="O")})
        },
    )
    outside = ChatTools(profile, TOOLS, frozenset(), "m", scope=REPORTS)
    inside = ChatTools(profile, TOOLS, frozenset(), "m", scope=ARTICLES)
    assert (list(outside.profile.payload_types), outside.profile.actions["open"].label) == (["chart"], "")
    assert (list(inside.profile.payload_types), inside.profile.actions["open"].label) == (["chart", "draft"], "O")
    assert list(inside.profile.actions) == ["open", "close"]


@pytest.mark.row("PAY-7")
def test_get_payload_is_offered_where_there_may_be_something_to_read_whatever_the_profile_lists() -> None:
    bare = Profile(name="p", tools=["clock"])
    typed = Profile(name="p", tools=["clock"], payload_types={"chart": CHART})
    assert offered(bare) == ["clock"]
    assert offered(typed) == ["clock", "get_payload"]
    assert ChatTools(bare, TOOLS, frozenset(), "m", has_payloads=True).names == ["clock", "get_payload"]
    assert offered(typed, disabled=frozenset({"get_payload"})) == ["clock"]
    guarded = {"get_payload": FakeTool(name="get_payload", traits=Traits(required_role="editor"))}
    assert ChatTools(typed, guarded, frozenset(), "m", roles={"reader"}).names == []


EDITOR = Principal("ann", roles=("editor",))


@pytest.mark.row("CTX-7", "TOOL-5")
def test_the_role_is_that_of_who_started_the_run_and_no_body_can_name_one() -> None:
    profiles = Profiles({}, TOOLS, "m")
    chat = PureChat()
    assert "erase" not in profiles.tools_of(chat.state).names
    body = say("a", params={"metadata": {"roles": ["editor"]}})
    chat.command(body, by=Principal("bob", permissions=("editor",)))
    assert "erase" not in profiles.tools_of(chat.state).names
    chat.finish()
    chat.command(say("b"), by=EDITOR)
    assert "erase" in profiles.tools_of(chat.state).names
    chat.finish()
    assert "erase" not in profiles.tools_of(chat.state).names


@pytest.mark.row("TOOL-12")
def test_the_catalogue_is_what_a_new_chat_in_that_place_is_offered() -> None:
    profile = Profile(name="p", scopes={REPORTS: ScopeTable(tools=["save"])})
    profiles = Profiles({"p": profile}, TOOLS, "m")
    assert [tool.name for tool in profiles.catalogue(profile, REPORTS, {"editor"})] == [
        *("clock", "erase", "report", "save", "secret"),
    ]
