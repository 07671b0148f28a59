"""The pure parts of a Cluster: its URL, a node's view of it, the slots of keys, the messages to a listener."""

import pytest
from redis import exceptions as redis_errors

from threadcast.store.redis.connection import Redirected, explain_error
from threadcast.store.redis.keys import Keys, never_of
from threadcast.store.redis.listener import Listener
from threadcast.store.redis.scripts import SCRIPTS, SHARDED_SCRIPTS
from threadcast.store.topology.slots import View, at, parse_view, slot_of
from threadcast.store.url import parse_cluster_url
from threadcast_protocol.wire.errors import Unavailable

pytestmark = pytest.mark.anyio

INFO = b"cluster_enabled:1\r\ncluster_state:ok\r\ncluster_current_epoch:7\r\n"


def test_a_cluster_is_named_by_some_of_its_nodes() -> None:
    url = parse_cluster_url("rediss+cluster://ann:p%40ss@a:7000,b,[::1]:7002/?ssl_ca_certs=ca.pem")
    assert url.seeds == ("a:7000", "b:6379", "[::1]:7002")
    assert url.of("a:7000") == "rediss://ann:p%40ss@a:7000/0?ssl_ca_certs=ca.pem"
    assert parse_cluster_url("redis+cluster://a").of("a:6379") == "redis://a:6379/0"


@pytest.mark.parametrize(
    "url",
    [
        "redis+cluster://",
        "redis+cluster://a:1,",
        "redis+cluster://a:1,b:0",
        "redis+cluster://a:70000",
        "redis+cluster://a:1/3",
        "redis+cluster://a:secret",
        "redis://a:1",
    ],
)
def test_what_names_no_cluster_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ValueError, match="write it as") as refused:
        parse_cluster_url(url)
    assert "secret" not in str(refused.value)


def test_a_view_says_who_serves_each_slot_and_which_replicas_can_be_asked() -> None:
    ranges = [
        [0, 1, [b"10.0.0.1", 7000, b"id1", []], [b"10.0.0.2", 7001, b"id2", []]],
        [2, 2, [b"", 7002, b"id3"]],
        [3, 3, [None, 7002, b"id3"]],
        [9, 9, [b"fe80::1", 7003, b"id4"]],
    ]
    view = parse_view(INFO, ranges, "asked:6379")
    assert (view.is_ok, view.epoch) == (True, 7)
    assert view.owners == {
        0: "10.0.0.1:7000",
        1: "10.0.0.1:7000",
        2: "asked:7002",
        3: "asked:7002",
        9: "[fe80::1]:7003",
    }
    assert view.others == ("10.0.0.2:7001",)
    assert view.primaries == ("10.0.0.1:7000", "asked:7002", "[fe80::1]:7003")


def test_of_two_views_the_one_of_a_node_that_is_well_counts_and_then_the_newer_one() -> None:
    def view(is_ok: bool, epoch: int) -> View:
        return View(is_ok=is_ok, epoch=epoch, owners={0: "a:1"}, others=())

    assert view(True, 5).beats(view(False, 9)), "a node that was cut off may have voted for itself"
    assert view(True, 6).beats(view(True, 5))
    assert not view(True, 5).beats(view(True, 5))


def test_slots_are_those_of_the_specification() -> None:
    assert slot_of(b"123456789") == 0x31C3  # the example of the specification
    assert slot_of(b"{user1000}.following") == slot_of(b"{user1000}.followers") == slot_of(b"user1000")


def test_all_buckets_lie_in_slots_of_their_own_all_over_the_cluster() -> None:
    """Three equal nodes have 8, 4 and 4 of the 16 buckets; an operator can move a slot to change this."""
    keys = Keys(16)
    slots = [slot_of(keys.due(bucket)) for bucket in range(16)]
    assert len(set(slots)) == 16
    assert sorted(sum(slot * 3 // 16_384 == third for slot in slots) for third in range(3)) == [4, 4, 8]


def test_the_key_that_never_exists_lies_beside_the_script_s_own() -> None:
    keys = Keys(16)
    for key in (keys.chat("c1").log, keys.bell(3), keys.allowances("ann")):
        assert slot_of(never_of(key)) == slot_of(key)


def test_scripts_of_a_cluster_publish_to_the_shard_and_are_otherwise_the_same() -> None:
    assert any(b"SPUBLISH" in script.source for script in SHARDED_SCRIPTS.values())
    for name, script in SHARDED_SCRIPTS.items():
        assert b"'PUBLISH'" not in script.source and b"'NUMSUB'" not in script.source
        plain = script.source.replace(b"SPUBLISH", b"PUBLISH").replace(b"SHARDNUMSUB", b"NUMSUB")
        assert plain == SCRIPTS[name].source


@pytest.mark.parametrize(("kind", "is_ask"), [(redis_errors.MovedError, False), (redis_errors.AskError, True)])
def test_a_redirection_says_where_to_and_to_who_did_not_expect_a_cluster_how_to_name_one(
    kind: type[redis_errors.AskError], is_ask: bool
) -> None:
    moved = explain_error(kind("3999 127.0.0.1:6381"))
    assert isinstance(moved, Redirected)
    assert (moved.slot, moved.host, moved.port, moved.is_ask) == (3999, "127.0.0.1", 6381, is_ask)
    assert "redis+cluster://" in moved.message
    assert at("", 6381, "h:1") == at("?", 6381, "h:1") == "h:6381", "the same as the one that was asked"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (redis_errors.ClusterDownError("The cluster is down"), "cluster is down"),
        (redis_errors.TryAgainError("Multiple keys request during rehashing of slot"), "moving its data"),
        (redis_errors.MasterDownError("Link with MASTER is down"), "primary is away"),
    ],
)
def test_refusals_whose_first_word_redis_py_drops_pass_too(wrong: Exception, words: str) -> None:
    explained = explain_error(wrong)
    assert isinstance(explained, Unavailable)
    assert words in explained.message


async def test_a_listener_hears_once_of_each_connection_that_was_lost() -> None:
    listener = Listener((b"a", b"b", b"c"))
    for channel in (b"a", b"b", b"c"):
        listener.confirm(channel)
    assert listener.ready.is_set()
    listener.lose({b"a", b"b", b"other"})
    listener.lose({b"c"})
    listener.confirm(b"a")
    listener.offer(b"before")
    listener.confirm(b"c")  # node c serves its channels again, while node b is still down
    listener.offer(b"between")
    listener.confirm(b"b")
    listener.offer(b"after")
    assert [await anext(listener) for _ in range(5)] == [b"before", None, b"between", None, b"after"]


async def test_a_listener_that_goes_on_without_a_node_hears_when_it_comes() -> None:
    listener = Listener((b"a", b"b"))
    listener.confirm(b"a")
    listener.go_on()
    listener.offer(b"first")
    listener.confirm(b"b")
    assert [await anext(listener), await anext(listener)] == [b"first", None]


async def test_who_was_not_ready_when_the_connection_was_lost_has_missed_nothing() -> None:
    listener = Listener((b"a",))
    listener.lose({b"a"})
    listener.confirm(b"a")
    listener.offer(b"first")
    assert listener.ready.is_set()
    assert await anext(listener) == b"first"
