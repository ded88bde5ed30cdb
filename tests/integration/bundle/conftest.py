"""A git repository, and a web server on loopback that serves it and plain files."""

from __future__ import annotations

import http.server
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

Git = Callable[..., str]
Answer = tuple[int, dict[str, str], bytes]


@pytest.fixture
def git(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Git:
    """Runs git with a configuration of its own."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    config = tmp_path / "gitconfig"
    config.write_text("[user]\nname = Somebody\nemail = somebody@example.org\n[init]\ndefaultBranch = main\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))

    def run(folder: Path, *words: str) -> str:
        argv = ("git", "-C", str(folder), *words)
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()

    return run


@dataclass
class Web:
    """What the server has: answers by path, and repositories below a folder."""

    address: str
    answers: dict[str, Answer] = field(default_factory=dict)


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    """A server that ends with the test."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            if path in site.answers:
                self.answer(*site.answers[path])
            else:
                self.git(path, query)

        do_POST = do_GET

        def git(self, path: str, query: str) -> None:
            """As a web server does it for git: through its CGI program."""
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            environment = {
                **os.environ,
                "GIT_PROJECT_ROOT": str(tmp_path),
                "GIT_HTTP_EXPORT_ALL": "1",
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            }
            done = subprocess.run(["git", "http-backend"], env=environment, input=body, capture_output=True)
            head, _, content = done.stdout.partition(b"\r\n\r\n")
            headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
            self.answer(int(headers.pop("Status", "200").split()[0]), headers, content)

        def answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        site = Web(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()
