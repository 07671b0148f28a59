"""Turns the process that loads this file by `--app` into one of a later version, which writes the next format.

Only the format number is newer. An older version must not read newer data at all (decision 0005), so other differences
do not matter. The number is patched in the modules that use it, before the process opens anything.
"""

import threadcast.actor.append_request
import threadcast.api.run_watch
import threadcast.chat.entries
import threadcast.chat.entry_builder
import threadcast.store.load
from tests.deploys.deploy_tools import safe

__all__ = ["safe"]

NEXT = threadcast.chat.entries.FORMAT_VERSION + 1

for module in (
    threadcast.chat.entries,
    threadcast.chat.entry_builder,
    threadcast.actor.append_request,
    threadcast.api.run_watch,
    threadcast.store.load,
):
    assert hasattr(module, "FORMAT_VERSION")
    setattr(module, "FORMAT_VERSION", NEXT)  # noqa: B010 - a constant to everybody but this test
