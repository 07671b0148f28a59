"""The lock files are current: they pin each dependency of the manifests within its range, with hashes, and name no
index.

`scripts/lock` renews them. These tests read files alone, so they need no network.
"""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCKS = ROOT / "requirements"
WEB = ROOT / "web"
DISTRIBUTIONS = ("protocol", "client", "server")
KINDS = ("dependencies", "devDependencies")

RENEW = "renew it: scripts/lock"


def manifest(folder: str) -> dict[str, object]:
    return tomllib.loads((ROOT / folder / "pyproject.toml").read_text("utf-8"))


def of_group(name: str) -> Iterator[Requirement]:
    groups = manifest("")["dependency-groups"]
    assert isinstance(groups, dict)
    for each in groups[name]:
        if isinstance(each, str):
            yield Requirement(each)
        else:
            yield from of_group(each["include-group"])


def of_distributions() -> Iterator[Requirement]:
    """Return the dependencies of the three distributions, without the distributions themselves."""
    for folder in DISTRIBUTIONS:
        project = manifest(folder)["project"]
        assert isinstance(project, dict)
        found = [Requirement(each) for each in project["dependencies"]]
        yield from (each for each in found if not each.name.startswith("threadcast"))


WANTED = {
    "serve": [*of_distributions()],
    "build": [*of_group("build")],
    "node": [*of_group("node")],
    "pip": [*of_group("pip")],
    "test": [*of_distributions(), *of_group("test")],
}
"""The requirements that each lock must pin."""


def entries(lock: str) -> list[str]:
    """Return the entries of a lock: a requirement, its marker and its hashes, on one line each."""
    text = (LOCKS / f"{lock}.txt").read_text("utf-8").replace("\\\n", " ")
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]


def pinned(lock: str) -> dict[str, set[str]]:
    """Return the versions of each package; several if markers distinguish them."""
    found: dict[str, set[str]] = {}
    for entry in entries(lock):
        requirement = Requirement(entry.partition("--hash")[0])
        (pin,) = requirement.specifier
        assert pin.operator == "==", entry
        found.setdefault(canonicalize_name(requirement.name), set()).add(pin.version)
    return found


def test_every_lock_is_known() -> None:
    assert {path.stem for path in LOCKS.iterdir()} == {*WANTED}


@pytest.mark.parametrize("lock", WANTED)
def test_every_requirement_is_pinned_within_its_range(lock: str) -> None:
    versions = pinned(lock)
    for wanted in WANTED[lock]:
        found = versions.get(canonicalize_name(wanted.name), set())
        assert found, f"requirements/{lock}.txt has no {wanted.name}; {RENEW}"
        for version in found:
            assert wanted.specifier.contains(version), f"requirements/{lock}.txt: {wanted} is not {version}; {RENEW}"


@pytest.mark.parametrize("lock", WANTED)
def test_every_pin_has_a_hash_and_no_address(lock: str) -> None:
    assert entries(lock)
    for entry in entries(lock):
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry
    assert "://" not in (LOCKS / f"{lock}.txt").read_text("utf-8")


def test_what_is_served_and_built_has_the_versions_that_are_tested() -> None:
    tested = pinned("test")
    for lock in ("serve", "build"):
        for name, versions in pinned(lock).items():
            assert versions <= tested[name], f"requirements/{lock}.txt: {name} {versions}; tested: {tested[name]}"


def test_the_build_hook_takes_node_in_the_same_range_as_the_lock() -> None:
    hook = (ROOT / "server" / "hatch_build.py").read_text("utf-8")
    (wanted,) = of_group("node")
    assert f'NODE_WHEEL = "{wanted}"' in hook or Requirement(re.findall('NODE_WHEEL = "(.*)"', hook)[0]) == wanted


def test_the_lock_of_npm_pins_what_the_manifests_name() -> None:
    lock = json.loads((WEB / "package-lock.json").read_text("utf-8"))["packages"]
    for workspace in ("", "client", "app"):
        wanted = json.loads((WEB / workspace / "package.json").read_text("utf-8"))
        locked = lock[workspace]
        for kind in KINDS:
            assert locked.get(kind, {}) == wanted.get(kind, {}), f"{workspace or 'web'}: {kind}; {RENEW}"
            for name, version in wanted.get(kind, {}).items():
                keys = (f"{workspace}/node_modules/{name}", f"node_modules/{name}")
                found = next(lock[key] for key in keys if key in lock)
                assert found["version"] == version, f"{name} is {found['version']}, wanted {version}; {RENEW}"


def test_the_lock_of_npm_has_hashes_and_no_registry() -> None:
    lock = json.loads((WEB / "package-lock.json").read_text("utf-8"))["packages"]
    packages = {key: entry for key, entry in lock.items() if "node_modules/" in key and not entry.get("link")}
    assert len(packages) > 10
    for key, entry in packages.items():
        assert entry["integrity"].startswith("sha512-") and "resolved" not in entry, key
    assert "omit-lockfile-registry-resolved=true" in (WEB / ".npmrc").read_text("utf-8")
