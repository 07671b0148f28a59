"""A store's URL is shown to people with its address, but without a secret in any part of it."""

import pytest

from threadcast.store.url import shown_url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://127.0.0.1:7391/0", "redis://127.0.0.1:7391/0"),
        ("redis://:hunter2@127.0.0.1:7391/0", "redis://:***@127.0.0.1:7391/0"),
        ("rediss://ann:hunter2@[::1]:7391/0?db=2", "rediss://ann:***@[::1]:7391/0?db=2"),
        ("redis://hunter2@host", "redis://***@host"),
        ("redis://host/0?password=hunter2&db=1", "redis://host/0?password=***&db=1"),
        ("unix:///run/store/socket?db=1", "unix:///run/store/socket?db=1"),
        ("redis+sentinel://u:hunter2@a:1,b:2/main/0?sentinel_password=hunter2",
         "redis+sentinel://u:***@a:1,b:2/main/0?sentinel_password=***"),
        ("redis+cluster://a:1,b", "redis+cluster://a:1,b"),
    ],
)  # fmt: skip
def test_a_store_is_shown_by_its_address(url: str, shown: str) -> None:
    assert shown_url(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        "hunter2",
        "redis:hunter2@host",
        "redis://:hunter2/x@host/0",
        "redis://:hunter2?x@host/0",
        "redis://:hunter2#x@host/0",
        "redis://u:hunter2@more@host/0",
        "redis://host/0?password=hunter@2",
        "redis://host/0#hunter2",
        f"redis://{'a' * 60}#hunter2",
    ],
)
def test_nothing_is_shown_of_what_might_have_a_secret_anywhere(url: str) -> None:
    assert shown_url(url) == "***"
