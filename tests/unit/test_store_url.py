"""A store's URL behind Sentinel: it is parsed correctly, or refused without showing its content."""

import pytest

from threadcast.store.url import SentinelUrl, parse_sentinel_url


def test_a_list_of_sentinels_a_service_and_a_database() -> None:
    parts = parse_sentinel_url("redis+sentinel://a:26380,b,[::1]:26381/mymaster/3")
    sentinels = ("redis://a:26380", "redis://b:26379", "redis://[::1]:26381")
    assert parts == SentinelUrl(sentinels, "mymaster", "redis://primary.invalid/3")


def test_the_primary_has_its_user_and_the_sentinels_have_theirs() -> None:
    url = "rediss+sentinel://me:p%40ss@a/m.y-1?sentinel_username=you&sentinel_password=s%2Fcret&ssl_cert_reqs=none"
    parts = parse_sentinel_url(url)
    assert parts.primary == "rediss://me:p%40ss@primary.invalid/0?ssl_cert_reqs=none"
    assert parts.sentinels == ("rediss://you:s%2Fcret@a:26379?ssl_cert_reqs=none",)


@pytest.mark.parametrize(
    "rest",
    [
        "",
        "a",
        "a/",
        "/m",
        "a:x/m",
        "a:70000/m",
        "a:0/m",
        "a,,b/m",
        "a/m/x",
        "a/m/0/1",
        "a b/m",
        "[::1/m",
        "u:hunter2@/m",
    ],
)
def test_what_cannot_be_read_is_refused_with_the_right_shape_and_nothing_of_its_own(rest: str) -> None:
    with pytest.raises(ValueError, match=r"^write it as redis\+sentinel://") as refused:
        parse_sentinel_url(f"redis+sentinel://{rest}")
    assert "pass-1" not in str(refused.value)
