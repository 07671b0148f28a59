"""The library's own API, which knows who has borrowed what: GET /loans, for the caller whose token comes with it.

    python3 examples/help/library.py [PORT]

Threadcast asks it by the tool `my_loans` in threadcast.toml. It stands for a service that a company has already, so it
knows nothing of Threadcast, and checks tokens by itself.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LOANS = {
    "Bearer reader-token": [{"title": "The Sleeping Brain", "until": "2026-12-04"}],
    "Bearer editor-token": [],
}


class Library(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        loans = LOANS.get(self.headers.get("Authorization", ""))
        if self.path != "/loans":
            self._answer(404, {"error": "there is only /loans"})
        elif loans is None:
            self._answer(401, {"error": "nobody has this token"})
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
        """Quiet: the terminal is the page's."""


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8001
    with ThreadingHTTPServer(("127.0.0.1", port), Library) as server:
        server.serve_forever()
