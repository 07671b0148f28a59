"""Every decoder that is fuzzed, by name. The package has one file for each part of the product that decodes input; a
test checks that no decoder is missing."""

from functools import cache

from tests.fuzz.target import Target
from tests.fuzz.targets.commands import command_targets
from tests.fuzz.targets.configuration import configuration_targets
from tests.fuzz.targets.log import log_targets
from tests.fuzz.targets.models import model_targets
from tests.fuzz.targets.store import store_targets
from tests.fuzz.targets.stream_ids import stream_id_targets
from tests.fuzz.targets.streams import stream_targets

__all__ = ["all_targets"]


@cache
def all_targets() -> dict[str, Target]:
    """Return all targets in a fixed order, in which a run prints its table."""
    found = [
        *command_targets(),
        *log_targets(),
        *stream_targets(),
        *stream_id_targets(),
        *model_targets(),
        *store_targets(),
        *configuration_targets(),
    ]
    return {target.name: target for target in found}
