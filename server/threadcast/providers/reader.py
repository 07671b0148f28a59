"""The common part of the readers that convert a provider's stream into deltas. Pure.

Each adapter has a reader of its own for one answer: `openai/chat.py`, `openai/responses.py`, `anthropic/events.py` and
`google/answer.py`.
"""

from collections.abc import Sequence

from threadcast.providers.base import Delta, Finished, FinishReason, ModelNamed, UsageReported
from threadcast.providers.failures import model_failed
from threadcast.providers.tolerant import Mender

__all__ = ["AnswerReader"]


class AnswerReader:
    """Reads one answer. `has_begun`: a part of the answer has been passed on; `is_done`: the server reported the end of
    the answer. `mender` repairs the deltas of chunks with faults."""

    def __init__(self) -> None:
        self.has_begun = False
        self.is_done = False
        self.mender = Mender()
        self._model: str | None = None
        self._finish: FinishReason | None = None
        self._usage: UsageReported | None = None

    def _named(self, model: str | None) -> list[Delta]:
        """Return the name of the model if the provider has not reported this name before."""
        if not model or model == self._model:
            return []
        self._model = model
        return [ModelNamed(model)]

    def _passed_on(self, deltas: list[Delta]) -> list[Delta]:
        """Return the deltas in their final form. The answer has begun when any delta other than the model's name is
        passed on."""
        self.has_begun = self.has_begun or any(not isinstance(delta, ModelNamed) for delta in deltas)
        return self.mender.mend(deltas)

    def end(self) -> list[Delta]:
        """Return the last deltas of a stream that ended by itself.

        Raises:
            ModelFailed: the stream ended without a finish reason: it was cut (`broken`) or was not an answer.
        """
        if self._finish is None:
            raise model_failed("broken" if self.has_begun else "empty", "the stream ended without a finish reason")
        usage: Sequence[Delta] = [] if self._usage is None else [self._usage]
        return [*self.mender.end(), *usage, Finished(self._finish)]
