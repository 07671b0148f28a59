"""Every decoder keeps its law for inputs that hypothesis makes from good inputs, and for all inputs that once broke a
law.

`FUZZ_INPUTS=100000 FUZZ_SEED=7 pytest tests/fuzz/test_decoders.py -n 2` makes more inputs, with another seed. An input
that breaks a law is added to `found.json` once the decoder is fixed.
"""

import faulthandler
import json
import os
import resource
import time
from collections import Counter
from random import Random

import pytest

from tests.fuzz.run import FOUND, HANG_SECONDS, for_inputs, found_inputs, is_accepted
from tests.fuzz.target import Target
from tests.fuzz.targets import all_targets
from tests.fuzz.targets.models import import_sdks

INPUTS = int(os.environ.get("FUZZ_INPUTS", "20000"))
"""Number of inputs for all targets together; each target gets a part by its weight."""

STUCK_SECONDS = 300.0 + INPUTS / 100
"""Maximum seconds for one target. A decoder that hangs in C raises no exception, so the process then ends with a
traceback."""

GROWTH_MAX_BYTES = 512 * 1024 * 1024
"""Maximum growth of the process's peak memory by one target. An input has 64 KiB, and a decoder may allocate a hundred
times as much for it (a list of numbers), but must not keep it."""


@pytest.mark.slow(25)
@pytest.mark.parametrize("name", all_targets())
def test_every_decoder_gives_a_value_or_its_own_error_whatever_it_is_given(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    import_sdks()
    target = all_targets()[name]
    verdicts: Counter[bool] = Counter()

    def judge(data: bytes, random: Random) -> None:
        verdicts[is_accepted(target, data, random)] += 1

    for data in target.corpus:
        for number in range(4):
            judge(data, Random(number))
    assert verdicts[True], "a law that accepts no good input tests nothing"
    count = INPUTS * target.weight // sum(each.weight for each in all_targets().values())
    held_bytes = peak_bytes()
    with capfd.disabled():  # otherwise the traceback of a decoder that hangs is lost
        faulthandler.dump_traceback_later(STUCK_SECONDS, exit=True)
        try:
            for_inputs(target.corpus, max(count, 100), judge, found_inputs(name))
        finally:
            faulthandler.cancel_dump_traceback_later()
    assert verdicts[False], "a law that refuses nothing tests nothing"
    assert peak_bytes() - held_bytes < GROWTH_MAX_BYTES


def peak_bytes() -> int:
    """Return the peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_each_input_that_once_broke_a_law_names_a_target() -> None:
    assert {each["target"] for each in json.loads(FOUND.read_text())} <= set(all_targets())


def _burns(data: bytes, random: Random) -> bool:
    until = time.thread_time() + 1.1 * HANG_SECONDS
    while time.thread_time() < until:
        pass
    return True


def test_an_input_that_takes_a_second_of_cpu_breaks_the_law() -> None:
    with pytest.raises(AssertionError, match="of CPU"):
        is_accepted(Target("slow", _burns, (b"",)), b"", Random(0))
