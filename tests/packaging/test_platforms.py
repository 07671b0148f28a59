"""The client runs where Python has no Unix modules, such as on Windows.

Its unit tests run in an interpreter in which these modules cannot be imported.
"""

import re
import subprocess
import sys

from tests.packaging.environments import ROOT
from tests.packaging.without_unix import UNIX_MODULES

RUN_SECONDS = 300
"""Maximum seconds of the 85 tests on a busy machine; on an idle machine all of them together take some seconds."""

IMPORT_ALL = """
import importlib, pkgutil, threadcast_client, threadcast_protocol
for package in (threadcast_client, threadcast_protocol):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
"""


def without_unix(code: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in an interpreter without the Unix modules."""
    hiding = f"import sys; sys.modules.update(dict.fromkeys({UNIX_MODULES!r}))\n"
    return subprocess.run(
        [sys.executable, "-c", hiding + code],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
        cwd=ROOT,
    )


def test_the_modules_cannot_be_imported() -> None:
    assert "ModuleNotFoundError" in without_unix("import fcntl").stderr


def test_client_and_protocol_import_no_unix_module() -> None:
    done = without_unix(IMPORT_ALL)
    assert done.returncode == 0, done.stderr


def test_the_client_passes_its_tests_without_unix_modules() -> None:
    files = sorted(str(path) for path in (ROOT / "tests" / "unit").glob("test_client_*.py"))
    plugin = ["-p", "tests.packaging.without_unix", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugin, *files],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6_000:] + done.stderr[-2_000:]
    (passed,) = re.findall(r"(\d+) passed", done.stdout)
    assert int(passed) > 60
    skipped = re.findall(r"^SKIPPED .*", done.stdout, re.MULTILINE)
    assert len(skipped) == 1 and skipped[0].endswith("this platform locks no files"), skipped
