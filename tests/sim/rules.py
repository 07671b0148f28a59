"""Safety rules of the product that the search can switch off for a while."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

__all__ = ["Put", "Rule", "switched_off"]

Put = Callable[[Any, str, object], None]  # Any: a class or a module


@dataclass(frozen=True)
class Rule:
    """`mix` names the failure conditions in which the rule matters. Without the rule, one of the first `within` seeds
    must fail. `near` is the seed at which the tests begin their search, since they have less time.
    `tests/unit/test_state_cache.py` checks that a cached state is identified by its whole head string: two histories
    with one id are too rare here."""

    name: str
    mix: str
    switch_off: Callable[[Put], None]
    within: int = 300
    near: int = 0


@contextmanager
def switched_off(rule: Rule | None) -> Iterator[None]:
    """Switch the rule off for as long as the block runs."""
    undo: list[tuple[Any, str, object, bool]] = []

    def put(target: Any, name: str, value: object) -> None:
        undo.append((target, name, getattr(target, name, None), name in vars(target)))
        setattr(target, name, value)

    if rule is not None:
        rule.switch_off(put)
    try:
        yield
    finally:
        for target, name, value, was_its_own in reversed(undo):
            if was_its_own:
                setattr(target, name, value)
            else:
                delattr(target, name)
