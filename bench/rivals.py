"""Other servers that send events to many readers, for `bench.fanout`: a C program, nginx with nchan, Starlette and
sse-starlette.

Each is a process that sends the same block at the same pace to its readers. None has a log or a store. nchan gets each
event by an HTTP POST from this process; its worker is measured, not its master. If a server is not available, the
report names the missing server and has the figures of the others.
"""

import http.client
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.ports import free_port

from bench.processes import built

__all__ = ["Rival", "nchan", "piped", "plain_sse", "send_c"]

NCHAN = Path("/usr/lib/nginx/modules/ngx_nchan_module.so")
"""The path of the module in Debian's package libnginx-mod-nchan."""

START_SECONDS = 20.0


class Rival:
    """`pid` is the process whose CPU time is measured."""

    def __init__(self, pid: int, url: str, process: "subprocess.Popen[bytes]", path: str = "/") -> None:
        self.pid = pid
        self.url = url
        self.path = path
        self._process = process

    def play(self, count: int, interval_seconds: float) -> None:
        """Send a number of events. Blocks until the last event is sent."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(b"go %d %d\n" % (count, interval_seconds * 1e6))
        self._process.stdin.flush()
        if not self._process.stdout.readline():
            raise SystemExit(f"{self._process.args!r} ended with {self._process.wait(10)}")


class _Nchan(Rival):
    payload = b""

    def play(self, count: int, interval_seconds: float) -> None:
        address = self.url.removeprefix("http://")
        publisher = http.client.HTTPConnection(address, timeout=10)
        at = time.monotonic()
        for _ in range(count):
            at += interval_seconds
            time.sleep(max(0.0, at - time.monotonic()))
            publisher.request("POST", "/publish", self.payload)
            answer = publisher.getresponse()
            answer.read()
            if answer.status not in (201, 202):
                raise SystemExit(f"nchan answered {answer.status}")
        publisher.close()


@contextmanager
def piped(arguments: Sequence[str]) -> Iterator[Rival]:
    """Run a program that is controlled like `native/send.c`, for a block."""
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sys.stderr) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            yield Rival(process.pid, f"http://127.0.0.1:{int(process.stdout.readline())}", process)
        finally:
            process.stdin.close()  # its end


def send_c(payload_file: Path) -> list[str]:
    return [str(built("send")), str(payload_file)]


def plain_sse(kind: str, payload_file: Path) -> list[str]:
    return [sys.executable, "-m", "bench.plain_sse", kind, str(payload_file)]


@contextmanager
def nchan(directory: Path, payload: bytes) -> Iterator[Rival | None]:
    """Run nginx with one worker for a block; yields None if nginx is not installed. `payload` is the text of the data
    line; nchan adds the line's prefix and its own id."""
    binary = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if binary is None or not NCHAN.exists():
        yield None
        return
    port = free_port()
    config = directory / "nginx.conf"
    config.write_text(_CONFIG.format(directory=directory, module=NCHAN, port=port))
    arguments = [binary, "-c", str(config), "-p", str(directory), "-e", str(directory / "error.log")]
    with subprocess.Popen(arguments) as process:
        try:
            rival = _Nchan(_only_child(process.pid), f"http://127.0.0.1:{port}", process, "/events")
            rival.payload = payload
            yield rival
        finally:
            process.terminate()


_CONFIG = """
load_module {module};
daemon off;
worker_processes 1;
worker_rlimit_nofile 30000;
pid {directory}/pid;
error_log {directory}/error.log warn;
events {{ worker_connections 20000; }}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    keepalive_requests 1000000;
    server {{
        listen 127.0.0.1:{port} backlog=2048;
        location = /publish {{ nchan_publisher; nchan_channel_id bench; nchan_message_buffer_length 20; }}
        location = /events {{
            nchan_subscriber eventsource; nchan_channel_id bench; nchan_subscriber_first_message newest;
        }}
    }}
}}
"""


def _only_child(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        found = children.read_text().split()
        if found:
            return int(found[0])
        time.sleep(0.01)
    raise SystemExit("nginx has no worker; its output is above")
