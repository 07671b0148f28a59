"""How a server process begins to import: what the libraries would do beside it is left out.

Called by `cli.py` before anything else of a server is imported, and by the bench that measures this; it imports nothing
of the house. Together a third of the CPU that the imports take (`bench.start`). The rule: nothing that is left out
here is missing later; who wants it imports it then, and whoever runs for long calls `collect_calmly`.
"""

import gc
import sys

__all__ = ["GC_YOUNG_COUNT", "begin_lightly", "collect_calmly"]

GC_YOUNG_COUNT = 20_000
"""New objects until the collector looks at them; Python's 700 are made by some thirty appends, and imports, which make
a quarter of a million that all stay, would be searched through several hundred times. Cycles are rare here, and so
many objects weigh a few MB."""


def begin_lightly() -> None:
    """Import structlog, and leave the collector off, for the imports to come; `collect_calmly` ends that."""
    gc.disable()
    _import_structlog_alone()


def collect_calmly() -> None:
    """For the rest of the process, once it has imported what it runs. Also where nothing was begun lightly."""
    gc.set_threshold(GC_YOUNG_COUNT, 10, 10)
    gc.enable()


def _import_structlog_alone() -> None:
    """Where rich is installed, by whatever library, structlog imports 80 modules of it and of its own needs for
    tracebacks that show local variables. Ours never do (`telemetry.py`)."""
    if "rich" in sys.modules or "structlog" in sys.modules:
        return
    sys.modules["rich"] = None  # type: ignore[assignment] # how Python itself marks what must not be found
    try:
        import structlog  # noqa: F401 - the import is the purpose
    finally:
        del sys.modules["rich"]
