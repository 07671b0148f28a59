"""Builds the distributions once per session and installs them into separate environments, outside the clone.

uv installs them if it is on the PATH, otherwise the pip of the tests' interpreter. Both use the package index that the
machine is configured with; if no index answers, the tests are skipped.
"""

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from threadcast.api.page import STATIC

__all__ = ["INSTALL_SECONDS", "ROOT", "Environment", "build", "serving"]

ROOT = Path(__file__).parents[2]

INSTALL_SECONDS = 300
"""Maximum seconds of downloads on a slow connection; with a warm cache the downloads take some seconds."""

RUN_SECONDS = 120
"""Maximum seconds of one program on a busy machine."""


class Environment:
    """A virtual environment without pip. `home` is the directory in which the environment's programs run. All programs
    can import `.py` files of `home`, as a script can import the files beside it."""

    def __init__(self, directory: Path, home: Path) -> None:
        self._directory = directory
        self.home = home
        self.python = directory / "bin" / "python"
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", directory], check=True, capture_output=True, timeout=60
        )

    @property
    def packages(self) -> Path:
        """Its `site-packages`."""
        (found,) = self._directory.glob("lib/python*/site-packages")
        return found

    def install(self, *what: Path | str) -> None:
        """Skips the test if no package index answers; raises AssertionError if an index answers and the installation
        fails."""
        done = self._installed(*what)
        if done.returncode == 0:
            return
        if (found := Environment(self._directory / "probe", self.home)._installed("msgspec")).returncode != 0:
            pytest.skip(f"no package index can be reached from here: {found.stderr.strip().splitlines()[-1]}")
        raise AssertionError(f"{what} cannot be installed:\n{done.stdout[-4_000:]}{done.stderr[-4_000:]}")

    def _installed(self, *what: Path | str) -> subprocess.CompletedProcess[str]:
        command: list[Path | str]
        if shutil.which("uv") is not None:
            command = ["uv", "pip", "install", "--quiet", "--python", str(self.python), *what]
        else:
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(self.python)]
            command = [*pip, "install", "-qq", *what]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False, cwd=self.home
        )

    def variables(self) -> dict[str, str]:
        """Return the environment variables of the environment's programs: without Threadcast's own variables, and with
        `home` on the import path."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "PYTHON", "REDIS_", "THREADCAST"))}
        return {**clean, "PYTHONPATH": str(self.home), "PYTHONDONTWRITEBYTECODE": "1"}

    def run(self, *arguments: Path | str) -> str:
        """Run the environment's interpreter in `home`; returns its output. Raises AssertionError when the program
        fails."""
        done = subprocess.run(
            [self.python, *arguments],
            cwd=self.home,
            env=self.variables(),
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}\n{done.stdout[-4_000:]}{done.stderr[-4_000:]}"
        return done.stdout


def build(directory: Path) -> Path:
    """Run `scripts/build` with the page as it was last built; skip the test if the page was never built."""
    if not (STATIC / "index.html").is_file():
        pytest.skip("the page is not built; run `scripts/web build`")
    done = subprocess.run(
        [ROOT / "scripts" / "build", directory],
        env={**os.environ, "THREADCAST_PAGE": "skip"},
        capture_output=True,
        text=True,
        timeout=INSTALL_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return directory


@contextmanager
def serving(environment: Environment, *arguments: str) -> Iterator[str]:
    """Run `threadcast serve` from an environment, in its `home`, at any free port; yield its URL."""
    log = environment.home / "serve.log"
    with (
        log.open("ab") as stderr,
        subprocess.Popen(
            [environment.python.with_name("threadcast"), "serve", "--port", "0", *arguments],
            cwd=environment.home,
            env=environment.variables(),
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        ) as process,
    ):
        give_up = threading.Timer(RUN_SECONDS, process.kill)
        try:
            give_up.start()
            assert process.stdout is not None
            for line in process.stdout:  # ends with the process
                if found := re.search(r"listens on (http://\S+)", line):
                    break
            else:
                raise AssertionError(f"it ended before it was ready:\n{log.read_text()}")
            give_up.cancel()
            yield found[1]
        finally:
            give_up.cancel()
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(RUN_SECONDS)
            process.kill()
