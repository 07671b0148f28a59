"""How many turns a caller may take: asked before a command that begins a run is kept (AUTH-4).

A turn is a command, known by its chat and its request id: the same one sent again is the same turn. The windows slide
and are counted in the store, so they hold for all web processes. It does not decide who a caller is. The one rule: what
comes to nothing does not count.
"""

import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import msgspec
import structlog

from protocol.commands import (
    Command,
    ContinueMessage,
    Regenerate,
    RemoveMessage,
    RetryFromIndex,
    UpdateMessage,
    UserMessage,
)
from protocol.errors import Failed
from protocol.principal import Principal
from server.api.errors import QuotaSpent
from server.store.port import Store
from server.telemetry import Metrics

__all__ = ["Quota", "Quotas", "Turn"]

_log = structlog.get_logger()


class Quota(msgspec.Struct, frozen=True):
    """Turns in the last hour and the last 24; 0: as many as one likes."""

    per_hour: int = 0
    per_day: int = 0


class Turn:
    """A turn that is asked for. `keep` says that its command was accepted."""

    def __init__(self) -> None:
        self.is_kept = False

    def keep(self) -> None:
        self.is_kept = True


class Quotas:
    """`own` has the quotas of principals that do not have the `default`."""

    def __init__(self, store: Store, metrics: Metrics, default: Quota, own: Mapping[str, Quota]) -> None:
        self._store = store
        self._metrics = metrics
        self._default = default
        self._own = own

    @asynccontextmanager
    async def turn(self, principal: Principal, chat_id: str, command: Command) -> AsyncIterator[Turn]:
        """Around the post of `command`: counted before it, and taken back unless it was kept.

        Raises:
            QuotaSpent: over quota; nothing was counted.
            Unavailable: the store does not answer.
        """
        turn, quota = Turn(), self._own.get(principal.id, self._default)
        if quota == Quota() or not _begins_run(command):
            yield turn
            return
        name = f"{chat_id} {command.client_request_id}"
        spent = await self._store.spend_turn(principal.id, name, quota.per_hour, quota.per_day)
        if spent.wait_ms:
            self._metrics.turns_refused.inc()
            raise QuotaSpent(_sentence(quota), math.ceil(spent.wait_ms / 1_000))
        try:
            yield turn
        except BaseException:  # nobody knows whether the store has it; the same command sent again is the same turn
            turn.keep()
            raise
        finally:
            if spent.is_new and not turn.is_kept:
                await self._return(principal, name)

    async def _return(self, principal: Principal, name: str) -> None:
        try:
            await self._store.return_turn(principal.id, name)
        except Failed as trouble:  # the caller has an answer already; one turn too many is counted
            _log.warning("turn.not_returned", principal=principal.id, error=trouble.message)


def _begins_run(command: Command) -> bool:
    if isinstance(command, UpdateMessage | RemoveMessage):
        return command.regenerate
    return isinstance(command, UserMessage | Regenerate | RetryFromIndex | ContinueMessage)


def _sentence(quota: Quota) -> str:
    bounds = [f"{count} in {time}" for count, time in ((quota.per_hour, "an hour"), (quota.per_day, "a day")) if count]
    return f"you have taken as many turns as you may, {' and '.join(bounds)}; try again when the time is up"
