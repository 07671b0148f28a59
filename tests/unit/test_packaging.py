"""A wheel contains the built page and no build tools, does not require Node.js, and has no dead link in its
description.

The build hook is called as hatchling calls it, with a fake npm on the PATH; the wheel is built from the files of this
clone.
"""

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from email.parser import Parser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from threadcast.api.page import STATIC

ROOT = Path(__file__).parents[2]

Hook = Callable[[str], Any]  # Any: a class of hatchling's, which has no types here
NPM = '#!/bin/sh\necho "$@" >> asked\nexit {status}\n'


def has_node_wheel(packages: list[str]) -> bool:
    return any("node" in package for package in packages)


def hatch_build() -> Any:  # Any: see Hook
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "server" / "hatch_build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def hook(tmp_path: Path) -> Any:  # Any: see Hook
    """Return the hook of a clone at `tmp_path` for the wheel of the server."""
    (tmp_path / "web" / "app").mkdir(parents=True)
    root = str(tmp_path / "server")
    return hatch_build().PageBuildHook(root, {}, None, SimpleNamespace(), root, "wheel")


def relative_links(description: str) -> list[str]:
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", description) if not re.match("https?://", link)]


def description(metadata: dict[str, Any]) -> str:  # Any: the `project` table
    manifest = tomllib.loads((ROOT / "server" / "pyproject.toml").read_text("utf-8"))
    config = manifest["tool"]["hatch"]["metadata"]["hooks"]["custom"]
    hatch_build().ReadmeHook(str(ROOT / "server"), config).update(metadata)
    assert metadata["readme"]["content-type"] == "text/markdown"
    return str(metadata["readme"]["text"])


def test_links_and_pictures_of_the_readme_are_absolute_where_the_repository_has_an_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("THREADCAST_SOURCE_URL", raising=False)
    readme = (ROOT / "README.md").read_text("utf-8")
    count = len(relative_links(readme))
    urls = {"Source": "https://forge.example/threadcast"}
    text = description({"version": "1.2.3", "urls": urls})
    assert relative_links(text) == [] and text.count("](https://forge.example/threadcast/") == count > 20
    assert "[docs/page.md](https://forge.example/threadcast/blob/v1.2.3/docs/page.md)" in text
    assert "](https://forge.example/threadcast/raw/v1.2.3/docs/page-approval.png)" in text

    monkeypatch.setenv("THREADCAST_SOURCE_URL", "https://mirror.example/threadcast/")
    assert description({"version": "1.2.3"}).count("](https://mirror.example/threadcast/") == count


def test_links_of_the_readme_become_their_words_where_the_repository_has_no_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("THREADCAST_SOURCE_URL", raising=False)
    text = description({"version": "1.2.3"})
    assert "](" not in text and "- protocol/PROTOCOL.md: the wire, in full" in text


def npm_that_ends_with(status: int, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = directory / "bin" / "npm"
    program.parent.mkdir()
    program.write_text(NPM.format(status=status))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}/bin{os.pathsep}/usr/bin")


def test_the_page_is_built_by_npm_of_the_path_when_the_package_is(
    hook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    npm_that_ends_with(0, tmp_path, monkeypatch)
    assert hook.dependencies() == []
    hook.initialize("standard", {})
    asked = (tmp_path / "web" / "asked").read_text().splitlines()
    assert [line.split()[0] for line in asked] == ["ci", "run"]


def test_an_editable_install_goes_on_without_the_page_and_a_release_does_not(
    hook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    npm_that_ends_with(1, tmp_path, monkeypatch)
    hook.initialize("editable", {})
    assert "scripts/web build" in capsys.readouterr().err
    with pytest.raises(subprocess.CalledProcessError):
        hook.initialize("standard", {})


def test_a_build_environment_without_npm_is_given_one_unless_the_page_is_left_out(
    hook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert has_node_wheel(hook.dependencies())
    monkeypatch.setenv("THREADCAST_PAGE", "skip")
    assert hook.dependencies() == []
    hook.initialize("standard", {})
    assert not (tmp_path / "web" / "asked").exists()


def test_a_wheel_holds_the_page_and_nothing_that_made_it_and_asks_for_no_node(tmp_path: Path) -> None:
    if not (STATIC / "index.html").is_file():
        pytest.skip("the page is not built; run `scripts/web build`")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", tmp_path],
        cwd=ROOT / "server",
        env={**os.environ, "THREADCAST_PAGE": "skip"},  # the page is already built, and other tests read it
        capture_output=True,
        check=True,
        timeout=120,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        fields = Parser().parsestr(files.read(metadata).decode())
    required = fields.get_all("Requires-Dist", [])
    description = str(fields.get_payload())
    assert fields["Description-Content-Type"] == "text/markdown"
    assert description.startswith("# Threadcast") and not relative_links(description)
    assert "threadcast/static/index.html" in names
    assert {name.rpartition(".")[2] for name in names if name.startswith("threadcast/static/assets/")} == {
        "js",
        "css",
        "woff2",
    }
    assert "threadcast/static/diagram.html" in names
    assert {"threadcast/static/licenses.md", "threadcast/static/licenses-diagram.md"} <= set(names)
    assert len([name for name in names if "KaTeX_" in name]) == 20  # KaTeX's fonts, in one format
    transcripts = {path.name for path in (ROOT / "server/threadcast/console/conformance/transcripts").glob("*.json")}
    kit = "threadcast/console/conformance/transcripts/"
    assert {name.removeprefix(kit) for name in names if name.startswith(kit)} == transcripts
    assert not [name for name in names if "node_modules" in name or name.startswith("web/") or name.endswith(".ts")]
    assert required and not has_node_wheel(required)
