"""Authentication: a request belongs to the local principal or to the principal of a known token, or it is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadcast.api.auth import Authenticator, LocalAuthenticator, TokenAuthenticator, hash_token
from threadcast_protocol.wire.errors import Unauthorized
from threadcast_protocol.wire.principal import LOCAL, Principal

ALICE = Principal("alice", ("approve",))
BOB = Principal("bob")
TOKENS: Authenticator = TokenAuthenticator(
    {hash_token("tc_a"): ALICE, hash_token("tc_b"): BOB, hash_token("tc_a2"): ALICE}
)


@pytest.mark.row("AUTH-1")
def test_without_tokens_everybody_is_the_local_principal() -> None:
    authenticator: Authenticator = LocalAuthenticator()
    assert [authenticator.authenticate(said) for said in (None, "", "Bearer whatever")] == [LOCAL] * 3


@pytest.mark.row("AUTH-1")
def test_a_known_token_speaks_for_its_principal_wherever_it_stands_in_the_list() -> None:
    said = ["Bearer tc_a", "bearer tc_b", "BEARER  tc_a2 "]
    assert [TOKENS.authenticate(header) for header in said] == [ALICE, BOB, ALICE]


@pytest.mark.row("AUTH-1")
@pytest.mark.parametrize(
    "said", [None, "", "tc_a", "Basic tc_a", "Bearer", "Bearer ", "Bearer tc_", "Bearer tc_a tc_b", "Bearer TC_A"]
)
def test_whoever_has_no_known_token_is_nobody(said: str | None) -> None:
    with pytest.raises(Unauthorized):
        TOKENS.authenticate(said)


@given(st.text())
def test_whatever_is_sent_ends_in_a_principal_or_unauthorized(said: str) -> None:
    with pytest.raises(Unauthorized):
        TOKENS.authenticate(f"Bearer {said}-")


def test_the_refusal_does_not_repeat_what_was_sent() -> None:
    with pytest.raises(Unauthorized) as caught:
        TOKENS.authenticate("Bearer guessed-secret")
    assert "guessed" not in caught.value.message


def test_an_authenticator_that_lets_nobody_in_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="no request would be accepted"):
        TokenAuthenticator({})
