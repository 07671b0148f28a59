"""Describes the former owner of a chat, a worker that did not release the chat.

That worker seems to be dead, but it may have lost only its connections (DISPATCH §5). It stops work that may not run
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
    """Computes how long the new owner of a chat must wait for the former owner."""

    def __init__(self, worker: str, *, has_begun: bool = True, lease_left_seconds: float = 0.0) -> None:
        """Describe the former owner; its lease counts down from now.

        Args:
            worker: The name of the former owner; '' if the chat was released.
            has_begun: Whether the former owner had written its fence. If not, its death does not count against a
                command.
            lease_left_seconds: How long the former owner may still believe that it owns the chat.
        """
        self.worker = worker
        self.has_begun = has_begun
        self._lease_ends_at = time.monotonic() + lease_left_seconds

    def is_taken_over_by(self, worker: str) -> bool:
        """Return whether the chat's next fence counts as a takeover."""
        return self.has_begun and self.worker not in ("", worker)

    def forget(self) -> None:
        """Stop waiting for the former owner: from now on the new owner carries out the chat's work."""
        self._lease_ends_at = -math.inf

    def wait_seconds(self, state: OwnerState, tools: ChatTools, processes: ChatProcesses) -> float:
        """Return the seconds for which the chat's work must not be continued: the rest of the lease, if the former
        owner was carrying out a tool or a step that must not run twice, or had processes; otherwise 0. The log must not
        record the end of a tool, step or process that may still be running."""
        left_seconds = self._lease_ends_at - time.monotonic()
        if left_seconds <= 0 or not (processes.lost(state) or has_single_effect(state, tools)):
            return 0.0
        return left_seconds
