"""Edges from the inline shorthand: any text of a model becomes a tree, or a sentence that explains the error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from threadcast.tools.workflow import Action, ActionKind, Edge, expand_edges
from threadcast.tools.workflow.edges import kinds_by_type
from threadcast_protocol.wire.errors import ToolFailed

KINDS = kinds_by_type([ActionKind("mail"), ActionKind("approve", ports=("yes", "no"))])


@pytest.mark.row("TOOL-10")
def test_each_action_gets_one_edge_from_where_it_says() -> None:
    actions = [
        Action("Ask", "approve"),
        Action("Tell", "mail", after="Ask"),
        Action("Refuse", "mail", after="Ask:no"),
        Action("Archive", "mail", after="Tell"),
    ]
    assert expand_edges(actions, KINDS) == [
        Edge("Ask"),
        Edge("Tell", "Ask", "yes"),
        Edge("Refuse", "Ask", "no"),
        Edge("Archive", "Tell", "out"),
    ]


@pytest.mark.row("TOOL-10")
@pytest.mark.parametrize(
    ("actions", "sentence"),
    [
        ([], "No action begins the workflow"),
        ([Action("A", "mail", after="A")], "No action begins the workflow"),
        ([Action("A", "mail"), Action("B", "mail")], "A, B have none"),
        ([Action("A", "mail"), Action("B", "mail", after="C")], "'C', which is not an action. Known actions: A"),
        ([Action("A", "mail"), Action("B", "mail", after="A:left")], "no port 'left'. Ports of a mail: out"),
        ([Action("A", "mail"), Action("B", "mail", after="A:")], "no port ''"),
        ([Action("A", "fly")], "no action type 'fly'. Known types: mail, approve"),
        ([Action("A", "mail"), Action("A", "mail", after="A")], "two actions called 'A'"),
        ([Action("A:b", "mail")], "cannot be an action's name"),
        ([Action(" ", "mail")], "cannot be an action's name"),
        (
            [Action("A", "mail"), Action("B", "mail", after="C"), Action("C", "mail", after="B")],
            "does not lead to B, C",
        ),
    ],
)
def test_what_does_not_fit_is_told_to_the_model(actions: list[Action], sentence: str) -> None:
    with pytest.raises(ToolFailed) as failed:
        expand_edges(actions, KINDS)
    assert sentence in failed.value.message


def test_two_kinds_of_one_type_and_a_kind_without_ports_are_mistakes_of_the_operator() -> None:
    with pytest.raises(ValueError, match="two kinds"):
        kinds_by_type([ActionKind("mail"), ActionKind("mail", ports=("a",))])
    with pytest.raises(ValueError, match="at least one port"):
        ActionKind("mail", ports=())


@st.composite
def trees(draw: DrawFn) -> list[Action]:
    """Return actions in any order; each action except the root follows another action, with or without a named port."""
    count = draw(st.integers(1, 12))
    actions = [Action("a0", draw(st.sampled_from(sorted(KINDS))))]
    for number in range(1, count):
        before = actions[draw(st.integers(0, number - 1))]
        port = draw(st.sampled_from(["", *(f":{port}" for port in KINDS[before.type].ports)]))
        actions.append(Action(f"a{number}", draw(st.sampled_from(sorted(KINDS))), f"{before.name}{port}"))
    return draw(st.permutations(actions))


@pytest.mark.row("TOOL-10")
@given(trees())
def test_every_tree_expands_to_one_edge_for_each_action_in_their_order(actions: list[Action]) -> None:
    edges = expand_edges(actions, KINDS)
    assert [edge.target for edge in edges] == [action.name for action in actions]
    assert [edge.target for edge in edges if edge.source is None] == ["a0"]
    types = {action.name: action.type for action in actions}
    for action, edge in zip(actions, edges, strict=True):
        if edge.source is not None:
            name, _, port = action.after.partition(":")
            assert (edge.source, edge.port) == (name, port or KINDS[types[name]].ports[0])


NAMES = st.sampled_from(["a", "b", "c", "a:yes", "b:out", "", ":"])


@given(st.lists(st.builds(Action, NAMES, st.sampled_from(["mail", "approve", "?"]), NAMES), max_size=5))
def test_anything_at_all_expands_or_is_refused_in_words(actions: list[Action]) -> None:
    try:
        edges = expand_edges(actions, KINDS)
    except ToolFailed as failed:
        assert failed.message.endswith(".")
    else:
        assert len(edges) == len(actions)
        assert sum(edge.source is None for edge in edges) == 1
