"""A local server that records the requests it gets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@contextmanager
def recording_server() -> Iterator[tuple[str, list[str]]]:
    """Run a server in a block; yields its address, and the requests so far."""
    requests = []

    class Handler(BaseHTTPRequestHandler):
        def send_error(self, code: int, *texts: str | None) -> None:
            requests.append(self.raw_requestline.decode(errors="replace"))
            super().send_error(code, *texts)  # 501, because there is a method for no request

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", requests
        finally:
            server.shutdown()
