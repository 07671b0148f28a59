"""Turns of principals in Redis, as quotas count them: one sorted set each, a day long.

It does not know what a turn is nor who refuses it; `redis_store.py` combines it with the other nouns. The rule: what is
counted holds for all web processes at once, and the same turn is never counted twice.
"""

from server.store.connection import Commands
from server.store.keys import Keys
from server.store.port import TurnSpent

__all__ = ["RedisTurns"]


class RedisTurns:
    """The part of the store that counts turns."""

    _redis: Commands
    _keys: Keys

    async def spend_turn(self, principal_id: str, turn: str, per_hour: int, per_day: int) -> TurnSpent:
        outcome, wait_ms = await self._redis.call(
            "turn_spend", (self._keys.turns(principal_id),), turn, per_hour, per_day
        )
        return TurnSpent(outcome == b"NEW", int(wait_ms))

    async def return_turn(self, principal_id: str, turn: str) -> None:
        await self._redis.call("turn_return", (self._keys.turns(principal_id),), turn)
