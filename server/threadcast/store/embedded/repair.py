"""Repairs the files of the embedded store after a power loss or other damage. Every byte of the files is kept.

`mend_end` runs after every failed start. It cuts a damaged end off the last file, after the last whole record of the
file. `mend_files` and `set_base_aside` run only on request (`threadcast doctor --repair`), because the store may lose
more than the end of a file. They repair damage that is followed by whole records, and unreadable snapshots and
manifests. All bytes that are cut off or replaced are kept below `damaged/` in the store's directory, so that the
original files can be restored. The caller makes sure that no server uses the files meanwhile.
"""

import os
import shutil
import time
from itertools import count
from pathlib import Path
from typing import NamedTuple

from threadcast.store.embedded.aof import BadManifest, Manifest, Scan, parse_manifest, scan, sequence_of
from threadcast_protocol.wire.errors import Unavailable

__all__ = ["Cut", "Damaged", "mend_end", "mend_files", "read_manifest", "set_base_aside"]

FILES = "appendonlydir"
MANIFEST = "appendonly.aof.manifest"
DAMAGED = "damaged"
COPY_BYTES = 1024 * 1024


class Damaged(Unavailable):
    """The store's files cannot be loaded; an operator must decide to repair them, because some content would be
    lost."""

    def __init__(self, directory: Path, what: str) -> None:
        super().__init__(
            f"the embedded store in {directory} is damaged: {what}. "
            f"`threadcast doctor --repair --data-dir {directory.parent}` keeps a copy and saves what can be saved"
        )
        self.what = what


class Cut(NamedTuple):
    """The record of one cut. `copy` is the file with the bytes that were cut off; appending these bytes to `file`
    restores the original file."""

    file: Path
    at_byte: int
    bytes_count: int
    copy: Path
    fault: str

    def __str__(self) -> str:
        return f"{self.file.name}: {self.fault}; cut there, the {self.bytes_count} bytes after it are in {self.copy}"


def mend_end(directory: Path) -> Cut | None:
    """Cut the bad end off the newest file of commands. Returns None when the file has no bad end.

    Raises:
        Damaged: the files have other damage than a bad end.
        OSError: a file cannot be read, copied or cut.
    """
    manifest = read_manifest(directory)
    if manifest is None:
        return None
    for name in manifest.increments:
        path = directory / FILES / name
        if not path.is_file():
            raise Damaged(directory, f"{name} is missing")
        found = scan(path)
        if not found.fault:
            continue
        if found.resumes_at is not None:
            raise Damaged(directory, f"{name}: {found.fault}, and whole records follow at byte {found.resumes_at}")
        if name != manifest.increments[-1]:
            raise Damaged(directory, f"{name}: {found.fault}, and newer files follow")
        return _cut(directory, path, found)
    return None


def mend_files(directory: Path) -> list[str]:
    """Repair the manifest and every file of commands. Everything after the first damage is cut off, because a log with
    a missing part would show a history that never happened. The files after a damaged file are moved below `damaged/`.
    If the snapshot is missing, the newer files stay in place, because otherwise everything would be lost. Returns a
    sentence for each repair. Raises OSError."""
    done: list[str] = []
    try:
        manifest = read_manifest(directory)
    except Damaged as wrong:
        manifest = _rebuilt(directory)
        done.append(f"{wrong.what}; it was rebuilt from the names of the files")
    if manifest is None:
        return done
    base = manifest.base
    if base is not None and not (directory / FILES / base).is_file():
        done.append(f"{base} is missing: chats that are older than it are lost, or damaged")
        base = None
    whole: list[str] = []
    is_whole = True
    if base is not None and base.endswith(".aof") and (found := scan(directory / FILES / base)).fault:
        done.append(str(_cut(directory, directory / FILES / base, found)))
        is_whole = False
    for name in manifest.increments:
        path = directory / FILES / name
        if is_whole and path.is_file():
            whole.append(name)
            if (found := scan(path)).fault:
                done.append(str(_cut(directory, path, found)))
                is_whole = False
        else:
            done.append(_set_aside(directory, name) if path.is_file() else f"{name} is missing")
            is_whole = False
    if done:
        _write_manifest(directory, Manifest(base, tuple(whole)))
    return done


def set_base_aside(directory: Path) -> str | None:
    """Move a snapshot that the server cannot read below `damaged/`. Returns a sentence that reports the move, None when
    there is no snapshot. Raises OSError."""
    manifest = read_manifest(directory)
    if manifest is None or manifest.base is None:
        return None
    said = _set_aside(directory, manifest.base)
    _write_manifest(directory, Manifest(None, manifest.increments))
    return f"{said}: it cannot be read, so chats that are older than it are lost, or damaged"


def read_manifest(directory: Path) -> Manifest | None:
    """Return the manifest, or None when no server has run yet. Raises Damaged."""
    files = directory / FILES
    try:
        return parse_manifest((files / MANIFEST).read_text())
    except FileNotFoundError:
        left = sorted(path.name for path in files.glob("appendonly.aof.*") if path.stat().st_size)
        if not left:
            return None
        raise Damaged(directory, f"{MANIFEST} is missing, and there are {', '.join(left)}") from None
    except (BadManifest, UnicodeDecodeError):
        raise Damaged(directory, f"{MANIFEST} cannot be read") from None


def _rebuilt(directory: Path) -> Manifest:
    """Rebuild the manifest from the names of the files. When there are two snapshots, the server was about to delete
    the older one."""
    names = [path.name for path in (directory / FILES).glob("appendonly.aof.*")]
    bases = sorted((name for name in names if ".base." in name), key=sequence_of)
    increments = sorted((name for name in names if name.endswith(".incr.aof")), key=sequence_of)
    return Manifest(bases[-1] if bases else None, tuple(increments[-1:] if len(bases) > 1 else increments))


def _write_manifest(directory: Path, manifest: Manifest) -> None:
    """Replace the manifest atomically, as the server does, and keep the old manifest."""
    files = directory / FILES
    if not manifest.increments:  # without increments the server would load nothing
        manifest = Manifest(manifest.base, ("appendonly.aof.1.incr.aof",))
        (files / manifest.increments[0]).touch(mode=0o600)
    if (files / MANIFEST).exists():
        shutil.copy2(files / MANIFEST, _copy_path(directory, MANIFEST))
    new = files / f"temp-{MANIFEST}"
    with new.open("w") as file:
        file.write(manifest.text())
        file.flush()
        os.fsync(file.fileno())
    new.rename(files / MANIFEST)
    _sync(files)


def _cut(directory: Path, path: Path, found: Scan) -> Cut:
    """Write a copy of the damaged end to disk, then cut the file."""
    copy = _copy_path(directory, f"{path.name}.from-byte-{found.whole_bytes}")
    with path.open("rb") as source, copy.open("xb") as target:
        source.seek(found.whole_bytes)
        shutil.copyfileobj(source, target, COPY_BYTES)
        target.flush()
        os.fsync(target.fileno())
    _sync(copy.parent)
    with path.open("rb+") as file:
        file.truncate(found.whole_bytes)
        os.fsync(file.fileno())
    return Cut(path, found.whole_bytes, found.size_bytes - found.whole_bytes, copy, found.fault)


def _set_aside(directory: Path, name: str) -> str:
    kept = _copy_path(directory, name)
    (directory / FILES / name).rename(kept)
    return f"{name} is now {kept}"


def _copy_path(directory: Path, name: str) -> Path:
    """Return an unused path below `damaged/`."""
    (directory / DAMAGED).mkdir(mode=0o700, exist_ok=True)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    for number in count():
        path = directory / DAMAGED / f"{stamp}{f'-{number}' if number else ''}.{name}"
        if not path.exists():
            return path
    raise AssertionError  # unreachable: `count` does not end


def _sync(directory: Path) -> None:
    """Sync a directory, so that its names survive a power loss."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
