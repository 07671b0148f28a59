"""Makes the process that loads it by `--app` one of a later version: what it writes is of the next format.

The format's number is the only thing that is newer; what such a version would write differently does not matter to an
older one, which must not look (decision 0005). Patched where it is used, before the process has opened anything.
"""

import protocol.entries
import protocol.ledger
import server.actor.writer
import server.api.run_watch
import server.store.load
from tests.deploys.deploy_tools import safe

__all__ = ["safe"]

NEXT = protocol.entries.FORMAT_VERSION + 1

for module in (protocol.entries, protocol.ledger, server.actor.writer, server.api.run_watch, server.store.load):
    assert hasattr(module, "FORMAT_VERSION")
    setattr(module, "FORMAT_VERSION", NEXT)  # noqa: B010 - a constant to everybody but this test
