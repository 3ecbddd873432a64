"""A proxy between the probe and a real server: it forwards everything, and breaks or changes what it is told to."""

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

Body = dict[str, Any]
Edit = Callable[[int, Body], Body | None]
_HEADERS = ("Authorization", "Content-Type", "Accept-Encoding")


@contextmanager
def proxy(upstream: str, edit: Edit) -> Iterator[str]:
    """Yield the URL of a proxy before ``upstream``.

    ``edit`` gets the running number (from 1) and the body of each ``/generate`` and returns the body to forward; None
    forwards it unchanged and breaks the connection after the answer's first piece.
    """
    target = urlsplit(upstream)
    seen, lock = [0], threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._forward(b"")

        def do_POST(self) -> None:
            self._forward(self.rfile.read(int(self.headers.get("Content-Length", 0))))

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's own name
            """Say nothing."""

        def _forward(self, body: bytes) -> None:
            breaks = False
            if self.path == "/generate":
                with lock:
                    seen[0] += 1
                    number = seen[0]
                edited = edit(number, json.loads(body))
                breaks = edited is None
                body = body if edited is None else json.dumps(edited).encode()
            connection = http.client.HTTPConnection(target.hostname or "", target.port, timeout=300)
            try:
                headers = {name: self.headers[name] for name in _HEADERS if self.headers.get(name)}
                connection.request(self.command, self.path, body or None, headers)
                answer = connection.getresponse()
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.headers.get("Content-Type", "application/json"))
                self.end_headers()
                while piece := answer.read1(65536):
                    self.wfile.write(piece)
                    self.wfile.flush()
                    if breaks:
                        return
            except (BrokenPipeError, ConnectionResetError):
                pass
            finally:
                connection.close()

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
