"""Finds how much memory the processes of this machine, or of this container, may use.

Linux limits the memory of a container by control groups (docs.kernel.org, "Control Group v2", Memory). A process sees
the limits of its own group and of the groups above it; the smallest limit applies.
"""

import os
from contextlib import suppress
from pathlib import Path

__all__ = ["machine_bytes"]

_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")


def machine_bytes(groups: Path = _GROUPS, own_groups: Path = _OWN_GROUPS) -> int:
    """Return the bytes of memory that the processes of this machine, or of this container, may use together."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    lines = []
    with suppress(OSError):  # no Linux, or no control groups
        lines = own_groups.read_text().splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            found += _limits(groups, path, "memory.max")
        elif "memory" in controllers.split(","):
            found += _limits(groups / "memory", path, "memory.limit_in_bytes")
    return min(found)


def _limits(root: Path, path: str, name: str) -> list[int]:
    """Return the limits of a group and of all groups above it. In a container, the path may be a path of the host,
    whose groups are not visible in the container. The root is then the container's own group."""
    group = Path(os.path.normpath(f"/{path}"))
    limits = []
    for each in (group, *group.parents):
        with suppress(OSError, ValueError):  # ValueError: "max", which means no limit
            limits.append(int((root / str(each).lstrip("/") / name).read_text()))
    return [limit for limit in limits if limit > 0]
