"""The quota of runs per caller, checked before a command that begins a run is stored (AUTH-4).

A run is counted under the chat and the request id of its command, so a command that is sent twice counts once. The time
windows slide. The store counts the runs, so a quota holds for all web processes together. A refused command does not
count.
"""

import math
from collections.abc import Mapping

import msgspec
import structlog

from threadcast.api.errors import QuotaSpent
from threadcast.base.telemetry import Metrics
from threadcast.chat.internal_commands import InternalCommand
from threadcast.store.ports import Allowances
from threadcast_protocol.wire.commands import (
    Command,
    ContinueMessage,
    Regenerate,
    RemoveMessage,
    RetryFromIndex,
    UpdateMessage,
    UserMessage,
)
from threadcast_protocol.wire.errors import Failed
from threadcast_protocol.wire.principal import Principal

__all__ = ["Quota", "Quotas"]

_log = structlog.get_logger()


class Quota(msgspec.Struct, frozen=True):
    """The number of runs that a caller may begin within an hour and within 24 hours; 0 means no limit."""

    per_hour: int = 0
    per_day: int = 0


class Quotas:
    """Counts runs. `own` maps ids of principals to their quotas; all other principals have the quota `default`."""

    def __init__(self, store: Allowances, metrics: Metrics, default: Quota, own: Mapping[str, Quota]) -> None:
        self._store = store
        self._metrics = metrics
        self._default = default
        self._own = own

    async def spend(self, principal: Principal, chat_id: str, command: Command | InternalCommand) -> str | None:
        """Count the run that `command` begins. Returns the name under which the run was counted, or None if nothing was
        counted: the command begins no run, the principal has no quota, or the same command was counted before.

        Raises:
            QuotaSpent: the quota is used up; nothing was counted.
            Unavailable: the store does not answer.
        """
        quota = self._own.get(principal.id, self._default)
        if quota == Quota() or not _begins_run(command):
            return None
        name = f"{chat_id} {command.client_request_id}"
        spent = await self._store.spend_allowance(principal.id, name, quota.per_hour, quota.per_day)
        if spent.wait_ms:
            self._metrics.turns_refused.inc()
            raise QuotaSpent(_sentence(quota), math.ceil(spent.wait_ms / 1_000))
        return name if spent.is_new else None

    async def give_back(self, principal: Principal, name: str | None) -> None:
        """Undo what `spend` counted under `name`, because its command was refused. Do not call this function if the
        store did not answer: the command may have been stored, and a repetition of the command is not counted again."""
        if name is None:
            return
        try:
            await self._store.return_allowance(principal.id, name)
        except Failed as trouble:  # the caller gets an answer all the same; one run too many stays counted
            _log.warning("turn.not_returned", principal=principal.id, error=trouble.message)


def _begins_run(command: Command | InternalCommand) -> bool:
    if isinstance(command, UpdateMessage | RemoveMessage):
        return command.regenerate
    return isinstance(command, UserMessage | Regenerate | RetryFromIndex | ContinueMessage)


def _sentence(quota: Quota) -> str:
    bounds = [f"{count} in {time}" for count, time in ((quota.per_hour, "an hour"), (quota.per_day, "a day")) if count]
    return f"you have taken as many turns as you may, {' and '.join(bounds)}; try again when the time is up"
