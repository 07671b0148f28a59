"""The library's own API for loans. GET /loans returns the loans of the caller, whom a library card identifies.

    python3 examples/help/library.py [PORT]

The example's server runs it (`the_library` in tools.py), and the tool `my_loans` in threadcast.toml calls it. It
represents an existing service of a company, so it does not use Threadcast and checks cards itself.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

PORT = 8001

LOANS = {
    "Bearer card-of-the-reader": [{"title": "The Sleeping Brain", "until": "2026-12-04"}],
    "Bearer card-of-the-editor": [],
}


class Library(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        loans = LOANS.get(self.headers.get("Authorization", ""))
        if self.path != "/loans":
            self._answer(404, {"error": "there is only /loans"})
        elif loans is None:
            self._answer(401, {"error": "nobody has this card"})
        else:
            self._answer(200, {"loans": loans})

    def _answer(self, status: int, body: dict[str, object]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing, because the terminal shows the output of the server."""


@contextmanager
def serving(port: int) -> Iterator[None]:
    """Serve the API in a thread for a block."""
    with ThreadingHTTPServer(("127.0.0.1", port), Library) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else PORT), Library) as server:
        server.serve_forever()
