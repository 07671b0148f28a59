"""The common part of the providers without a model server: `demo/models.py` and `demo/script.py`."""

from abc import ABC, abstractmethod

from threadcast.providers.base import ModelInfo, Request, UsageReported
from threadcast_protocol.wire.messages import Usage, text_of

__all__ = ["Scripted", "usage_of"]


class Scripted(ABC):
    """A `Provider` without `name` and `stream`, which subclasses define. Its answers are fixed, so that each of them
    can be continued, and no sampler changes them."""

    @abstractmethod
    def check(self, model: str) -> None:
        """Check a model's name. Raises ModelFailed for an unknown model or invalid options."""

    @abstractmethod
    def models(self) -> list[ModelInfo]: ...

    def prefills(self, model: str) -> bool:
        return True

    def samplers(self, model: str) -> frozenset[str]:
        return frozenset()

    async def aclose(self) -> None:  # noqa: B027 - not abstract: no subclass has anything to close
        """Do nothing, since there is no connection."""


def usage_of(request: Request, completion_words: int) -> UsageReported:
    """Return the usage of an answer, with each word counted as a token."""
    prompt_words = len(request.system.split()) + sum(len(text_of(m.content).split()) for m in request.messages)
    return UsageReported(Usage(prompt_words, completion_words, prompt_words + completion_words))
