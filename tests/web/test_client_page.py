"""The programs in web/client/README.md compile, and with a real server they print what the page says."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.server import started_server
from tests.web.installed import CLIENT, NODE_SECONDS, WEB

PAGE_URL = "http://127.0.0.1:8000"
CONFIG = '[tools.open_file]\npolicy = "client"\ndescription = "x"\n[models]\ndefault = "demo/echo"\n'
PROGRAMS = re.findall(
    r"^```ts\n(.*?)^```$.*?^```text\n(.*?)^```$", (CLIENT / "README.md").read_text("utf-8"), re.M | re.S
)


def test_every_program_of_the_page_compiles_and_prints_what_the_page_says(tmp_path: Path) -> None:
    compiler = WEB / "node_modules" / ".bin" / "tsc"
    if shutil.which("node") is None or not compiler.exists():
        pytest.skip("the TypeScript compiler is not installed; run `scripts/web`")
    assert len(PROGRAMS) == 4
    module = tmp_path / "node_modules" / "threadcast-client"
    module.mkdir(parents=True)
    shutil.copy(CLIENT / "package.json", module)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    types = ["--typeRoots", str(WEB / "node_modules" / "@types"), "--types", "node"]
    compile_ = [
        str(compiler),
        "--target",
        "ES2022",
        "--module",
        "NodeNext",
        "--strict",
        *types,
        "--outDir",
        str(tmp_path),
    ]
    built = subprocess.run([compiler, "-p", CLIENT / "tsconfig.json", "--outDir", module / "dist"], check=False)
    assert built.returncode == 0
    with started_server(tmp_path, config=CONFIG) as server:
        server.wait_ready()
        sources = []
        for number, (program, _) in enumerate(PROGRAMS):
            assert PAGE_URL in program
            sources.append(tmp_path / f"program{number}.ts")
            sources[-1].write_text(program.replace(PAGE_URL, server.url))
        made = subprocess.run(
            [*compile_, *map(str, sources)], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert made.returncode == 0, made.stdout
        for source, (_, printed) in zip(sources, PROGRAMS, strict=True):
            done = subprocess.run(
                ["node", source.with_suffix(".js")],
                capture_output=True,
                text=True,
                timeout=NODE_SECONDS,
                env=dict(os.environ),
                check=False,
            )
            assert done.stdout == printed, done.stderr
            assert done.returncode == 0
