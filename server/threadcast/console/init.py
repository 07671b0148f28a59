"""`threadcast init`: writes a configuration file and a first file of tools.

The configuration is `threadcast.example.toml`, in which every value is a comment. Only the name of the file of tools
is set.
"""

import os
from functools import partial
from pathlib import Path

from threadcast.console import refuse

__all__ = ["CONFIG", "TOOLS", "init"]

CONFIG, TOOLS = "threadcast.toml", "tools.py"

_FILES = Path(__file__).with_name("init_files")
_NO_APP = '# app = ""        '
_APP = f'app = "{TOOLS}"'


def init(directory: Path) -> int:
    """Write both files into a directory, which is created if necessary. Existing files are not changed.

    Returns the exit code.
    """
    example = (_FILES / "threadcast.example.toml").read_text("utf-8")
    texts = {
        CONFIG: example.replace(_NO_APP, _APP.ljust(len(_NO_APP)), 1),
        TOOLS: (_FILES / TOOLS).read_text("utf-8"),
    }
    try:
        directory.mkdir(parents=True, exist_ok=True)
        kept = [name for name, text in texts.items() if not _written(directory / name, text)]
    except OSError as wrong:
        return refuse(f"{wrong.filename}: {wrong.strerror}; name another directory")
    option = f" --app {directory / TOOLS}"
    if CONFIG not in kept:
        option = f" --config {directory / CONFIG}" if directory != Path() else ""
    print(f"\nStart the server with these tools: threadcast serve{option}")
    return 0


def _written(path: Path, text: str) -> bool:
    """Write a new file. Returns False when the file exists already."""
    try:
        # Other users may not read the file, because keys of models will be added to it.
        with open(path, "x", encoding="utf-8", opener=partial(os.open, mode=0o600)) as file:
            file.write(text)
    except FileExistsError:
        print(f"kept      {path} (the file exists already and was not changed)")
        return False
    print(f"written   {path}")
    return True
