"""How far apart two appends of one chat's deltas are, and two reads of one model's answer: the same, by the load.

Shared by the writers of a worker and by the transport that reads models: what is read sooner would only wait to be
appended. An append costs about the same whatever it holds (0.5 to 0.9 ms of CPU in worker, store and web together, on
a busy machine), so a process with many answers under way gathers longer. A
transport counts the answers of its own provider. The rule: only the second and later pieces of an answer ever wait.
"""

__all__ = ["PACE_SECONDS", "pace_seconds"]

PACE_SECONDS = 0.030
"""While few answers are under way: what comes within it is one event to the eye."""

PACE_MAX_SECONDS = 0.100
"""With any number: ten times a second still reads as writing. Above, a busy worker falls behind all the same."""

ANSWERS_PER_SECOND = 3_300
"""Appends of deltas that one process makes: 30 ms apart for 100 answers, 60 for 200, 100 for 330 and more."""


def pace_seconds(answers_count: int) -> float:
    """For a process that streams so many answers at once."""
    return min(PACE_MAX_SECONDS, max(PACE_SECONDS, answers_count / ANSWERS_PER_SECOND))
