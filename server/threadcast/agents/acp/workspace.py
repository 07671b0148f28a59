"""The folder of one chat, below which a coding agent reads and writes files through us (ACP, "File System").

The agent's program may change the folder at any time, so each part of a path is opened from the directory before it,
and no symlink is followed: neither a link nor `..` leads out of the folder.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex

from threadcast.agents.acp.connection import INVALID_PARAMS, RESOURCE_NOT_FOUND, RequestFailed
from threadcast.tools.programs_user import ProgramsUser

__all__ = ["FILE_MAX_BYTES", "Workspace"]

FILE_MAX_BYTES = 10_485_760
"""Maximum bytes of a file that is read or written; source files are far smaller."""

PARTS_MAX = 64


class Workspace:
    """The folder `root`. The folder is created, and `user` becomes its owner if programs run as another user.

    Raises:
        OSError: the folder cannot be created, or is a link.
    """

    def __init__(self, root: Path, user: ProgramsUser | None = None) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self._user = user
        self.root = root.parent.resolve() / root.name
        folder = os.open(self.root, _FOLDER)
        try:
            if user is not None:
                os.fchown(folder, user.uid, user.gid)
        finally:
            os.close(folder)

    def read(self, path: str, line: int | None = None, limit: int | None = None) -> str:
        """Return the text of a file, from the line `line` (from 1), at most `limit` lines.

        Raises:
            RequestFailed: the path leads out of the folder, or there is no such text file.
        """
        with self._folder_of(path) as (folder, name), _told(path):
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
            with os.fdopen(file, "rb") as opened:
                if not stat.S_ISREG(os.fstat(file).st_mode):
                    raise RequestFailed(f"{path} is no file", INVALID_PARAMS)
                data = opened.read(FILE_MAX_BYTES + 1)
        if len(data) > FILE_MAX_BYTES:
            raise RequestFailed(f"{path} has more than {FILE_MAX_BYTES:,} bytes", INVALID_PARAMS)
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise RequestFailed(f"{path} is no text in UTF-8", INVALID_PARAMS) from None
        if line is None and limit is None:
            return text
        begin = max(0, (line or 1) - 1)
        return "".join(text.splitlines(keepends=True)[begin : None if limit is None else begin + max(0, limit)])

    def write(self, path: str, text: str) -> None:
        """Write a file, in place of an old one, and create the folders that lead to it.

        Raises:
            RequestFailed: the path leads out of the folder, or the file cannot be written.
        """
        data = text.encode(errors="replace")
        if len(data) > FILE_MAX_BYTES:
            raise RequestFailed(f"a file has at most {FILE_MAX_BYTES:,} bytes", INVALID_PARAMS)
        with self._folder_of(path, create=True) as (folder, name), _told(path):
            new = f".{token_hex(8)}.new"
            file = os.open(
                new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=folder
            )
            try:
                with os.fdopen(file, "wb") as opened:
                    opened.write(data)
                    try:
                        before = os.stat(name, dir_fd=folder, follow_symlinks=False)
                        if stat.S_ISREG(before.st_mode):
                            os.fchmod(file, stat.S_IMODE(before.st_mode) & 0o777)
                    except FileNotFoundError:
                        pass
                    if self._user is not None:
                        os.fchown(file, self._user.uid, self._user.gid)
                os.replace(new, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                os.unlink(new, dir_fd=folder)
                raise

    def folder(self, path: str | None) -> str:
        """Return the absolute path of a folder for a terminal. Raises RequestFailed: the path is not below this
        folder."""
        if path is None:
            return str(self.root)
        with self._folder_of(f"{path}/x") as _:
            return str(self.root.joinpath(*self._parts(path)))

    def relative(self, path: str) -> str:
        """Return a path relative to this folder. Raises RequestFailed: the path is not below the folder."""
        return "/".join(self._parts(path)) or "."

    def _parts(self, path: str) -> list[str]:
        whole = os.path.normpath(self.root / path)
        if "\0" in path or (whole != str(self.root) and not whole.startswith(f"{self.root}{os.sep}")):
            raise RequestFailed(f"{path:.200} is not below the workspace {self.root}", INVALID_PARAMS)
        return list(Path(whole).relative_to(self.root).parts)

    @contextmanager
    def _folder_of(self, path: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
        """Open the folder of a file; yields its descriptor and the file's name."""
        *parts, name = self._parts(path) or [""]
        if not name or len(parts) > PARTS_MAX:
            raise RequestFailed(f"{path:.200} is no path of a file", INVALID_PARAMS)
        with _told(path):
            folder = os.open(self.root, _FOLDER)
        try:
            for part in parts:
                with _told(path):
                    folder = self._below(folder, part, create)
            yield folder, name
        finally:
            os.close(folder)

    def _below(self, folder: int, part: str, create: bool) -> int:
        """Open a folder in a folder, and close the outer folder."""
        if create:
            try:
                os.mkdir(part, 0o755, dir_fd=folder)
                if self._user is not None:
                    os.chown(part, self._user.uid, self._user.gid, dir_fd=folder, follow_symlinks=False)
            except FileExistsError:
                pass
        inner = os.open(part, _FOLDER, dir_fd=folder)
        os.close(folder)
        return inner


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def _told(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        # agents search for these words
        raise RequestFailed(f"Resource not found: {path:.200}", RESOURCE_NOT_FOUND) from None
    except OSError as wrong:
        raise RequestFailed(f"{path:.200}: {wrong.strerror or 'failed'}", INVALID_PARAMS) from None
