"""Speeds up the imports at the start of a server process by skipping optional work of libraries.

`cli.py` calls `begin_startup_imports` before it imports the server, and so does the benchmark `bench.start`. The call
saves a third of the CPU time of the imports. Skipped modules can still be imported later, and a long-running process
calls `collect_calmly`.
"""

import gc
import sys

__all__ = ["GC_YOUNG_COUNT", "begin_startup_imports", "collect_calmly"]

GC_YOUNG_COUNT = 20_000
"""Number of new objects that starts a garbage collection. Python's default, 700 objects, is reached by some thirty
appends. The imports make a quarter of a million objects, none of which is ever freed. Cycles are rare here, and 20,000
objects take a few MB."""


def begin_startup_imports() -> None:
    """Import structlog and turn the collector off for the following imports; `collect_calmly` turns it on again."""
    gc.disable()
    _import_structlog_alone()


def collect_calmly() -> None:
    """Set the collector for the rest of the process, after its imports. Works without `begin_startup_imports`, too."""
    gc.set_threshold(GC_YOUNG_COUNT, 10, 10)
    gc.enable()


def _import_structlog_alone() -> None:
    """Import structlog without rich. Where rich is installed, structlog imports 80 modules for tracebacks with local
    variables, which our logs never show (`telemetry.py`)."""
    if "rich" in sys.modules or "structlog" in sys.modules:
        return
    sys.modules["rich"] = None  # type: ignore[assignment] # Python's own marker for a module that must not be found
    try:
        import structlog  # noqa: F401 - the import is the purpose
    finally:
        del sys.modules["rich"]
