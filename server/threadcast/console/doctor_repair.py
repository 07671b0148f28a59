"""`threadcast doctor --repair`: repairs the files of the private store so that it starts again.

A store repairs a damaged end of its files by itself; this command is for other damage. The store must not run. The
repaired files are tested by starting the store on them. Every part that is cut out or replaced is kept in
`store/damaged` of the data directory. Exit codes: 0 when the store starts, 1 when the store does not start, or when the
directory has nothing to repair.
"""

from collections.abc import Mapping
from pathlib import Path

from threadcast.console import refuse
from threadcast.settings.sources import BadSettings, load_settings
from threadcast.store.embedded.embedded import PERSISTENT, locked_for_serving
from threadcast.store.embedded.repair import mend_files, set_base_aside
from threadcast.store.embedded.server_process import EndedAtStart, find_binary, start_server
from threadcast_protocol.wire.errors import ThreadcastError

__all__ = ["repair"]


def repair(environ: Mapping[str, str], file: str | None, *, data_dir: str | None = None) -> int:
    """Print a line for each repair, and return the exit code."""
    try:
        settings = load_settings(environ, {"store.data_dir": data_dir}, file).settings
        if data_dir is None and settings.store.url is not None:
            return refuse(
                "store.url names a server of your own; --repair is for the private store of `threadcast serve`. Name "
                "its directory with --data-dir"
            )
        directory = settings.store.data_path.absolute()
        if not (directory / "store").is_dir():
            return refuse(f"there is no store in {directory}; name another directory with --data-dir")
        with locked_for_serving(directory):
            return _repair(directory / "store")
    except (BadSettings, ThreadcastError, OSError) as wrong:
        return refuse(str(wrong))


def _repair(directory: Path) -> int:
    done = mend_files(directory)
    for line in done:
        print(line, flush=True)
    trouble = _try(directory)
    if trouble is not None and (aside := set_base_aside(directory)) is not None:
        print(aside, flush=True)
        done.append(aside)
        trouble = _try(directory)
    if trouble is not None:
        return refuse(f"the store still does not start: {trouble.words}")
    print("the store starts" if done else "the store's files are undamaged, and the store starts")
    return 0


def _try(directory: Path) -> EndedAtStart | None:
    """Start the store's server on these files and stop it again. Returns the error of the store's server if it did not
    start, else None.

    Raises:
        Unavailable: a server runs on these files already.
    """
    server = start_server(find_binary(), directory, PERSISTENT)
    try:
        server.wait_ready_blocking()
    except EndedAtStart as ended:
        return ended
    finally:
        server.stop_blocking()
    return None
