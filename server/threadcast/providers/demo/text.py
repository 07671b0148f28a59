"""Generates text for the demo models: an essay of any length from a seed, and a text split into words.

Deterministic on every machine, so that an answer can be continued after any prefix of itself. Pure.
"""

import random
import re
from collections.abc import Iterator

__all__ = ["essay", "words_of"]

_VOCABULARY = (
    "a about after again against all along always among ancient and answer any around as at autumn back bridge bright "
    "by calm carries city clear cloud cold come corner count day deep door down dust each early east even every eye "
    "far field fire first for forest found from garden gate glass gold grain green ground hand harbour head here high "
    "hill hour house idea in ink into island its keeps lamp large late leaf leaves letter light like line little long "
    "low map market memory middle mile moon more morning mountain moves music name narrow near never new night north "
    "of old on one open orchard other out over paper path pattern people place quiet rain reads returns ribbon river "
    "road roof room root salt same sand sea season seed shape ship shore silver slow small snow some song sound south "
    "square star still stone story stream street summer sun table that the their then there thing three through tide "
    "time to tower town tree turns two under until valley voice wall water wave weather west wheel where while white "
    "wide wind window winter with wood word work year"
)
_WORDS = _VOCABULARY.split()

_SENTENCE_WORDS = (5, 16)
_PARAGRAPH_SENTENCES = (3, 7)
"""Minimum and maximum lengths, short enough that a reader sees sentences and paragraphs appear."""

_WORD = re.compile(r"\S+\s*|\s+")


def essay(words_count: int, seed: str) -> str:
    """Return `words_count` words of prose; the same seed gives the same words. A shorter essay is not a prefix of a
    longer essay, because both end with a full stop."""
    chance = random.Random(seed)
    paragraphs: list[str] = []
    left = words_count
    while left > 0:
        sentences: list[str] = []
        for _ in range(chance.randint(*_PARAGRAPH_SENTENCES)):
            size = min(left, chance.randint(*_SENTENCE_WORDS))
            if size == 0:
                break
            sentence = " ".join(chance.choices(_WORDS, k=size))
            sentences.append(sentence[0].upper() + sentence[1:] + ".")
            left -= size
        paragraphs.append(" ".join(sentences))
    return "\n\n".join(paragraphs)


def words_of(text: str) -> Iterator[str]:
    """Split `text` into pieces, each a word with the white space after it. Joined, the pieces are `text` again."""
    return (match[0] for match in _WORD.finditer(text))
