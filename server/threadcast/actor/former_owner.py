"""Describes the worker that held a chat before its new owner and did not release it.

That worker seems to be dead, but it may have lost its connections alone (DISPATCH §5). It stops work that may not run
twice before its lease ends (`Host._fence_self`), and at once when it notices that it is fenced.
"""

import math
import time

from threadcast.actor.processes import ChatProcesses
from threadcast.agent_loop.recovery import has_single_effect
from threadcast.chat.owner_state import OwnerState
from threadcast.profiles.profile import ChatTools

__all__ = ["FormerOwner"]


class FormerOwner:
    """Tells how long the new owner of a chat must wait for the former one."""

    def __init__(self, worker: str, *, has_begun: bool = True, lease_left_seconds: float = 0.0) -> None:
        """Describe the former owner; its lease counts down from now.

        Args:
            worker: Its name; '' if the chat was released.
            has_begun: Whether it had written its fence. If not, its end counts against no command.
            lease_left_seconds: How long it may still believe that it owns the chat.
        """
        self.worker = worker
        self.has_begun = has_begun
        self._lease_ends_at = time.monotonic() + lease_left_seconds

    def is_taken_over_by(self, worker: str) -> bool:
        """Return whether the chat's next fence counts as a takeover."""
        return self.has_begun and self.worker not in ("", worker)

    def forget(self) -> None:
        """Do not wait any more: from now on the chat's work is the new owner's."""
        self._lease_ends_at = -math.inf

    def wait_seconds(self, state: OwnerState, tools: ChatTools, processes: ChatProcesses) -> float:
        """Return how long the chat's work must not be continued: until the lease is over, if the former owner was
        carrying out something that may not run twice, or had processes. The log must not say how these ended while
        they may go on."""
        left_seconds = self._lease_ends_at - time.monotonic()
        if left_seconds <= 0 or not (processes.lost(state) or has_single_effect(state, tools)):
            return 0.0
        return left_seconds
