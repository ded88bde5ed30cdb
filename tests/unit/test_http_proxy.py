"""One rule for proxies, and what is reached through one: stores, code, coordinators."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from petctl.bundle.download import download
from petctl.clusters.certificate import make_certificate
from petctl.errors import Unreachable, UsageError
from petctl.http_proxy import proxy_headers, proxy_of
from petctl.rendezvous.net.locator import resolve
from petctl.storage.core import http_client
from petctl.storage.core.http_client import HttpClient

PROXY = {"HTTPS_PROXY": "http://proxy:3128", "HTTP_PROXY": "http://plain:3128"}


@pytest.mark.parametrize(
    ("environ", "url", "expected"),
    [
        ({}, "https://s3.amazonaws.com/b", ""),
        (PROXY, "https://s3.amazonaws.com/b", "http://proxy:3128"),
        (PROXY, "http://store:8333/b", "http://plain:3128"),
        ({"https_proxy": "proxy:3128"}, "https://s3.amazonaws.com/b", "http://proxy:3128"),
        ({"ALL_PROXY": "http://proxy:3128"}, "http://store:8333/b", "http://proxy:3128"),
        ({"HTTPS_PROXY": ""}, "https://s3.amazonaws.com/b", ""),
        (PROXY, "http://127.0.0.1:8333/b", ""),
        (PROXY, "https://[::1]:8333/b", ""),
        (PROXY, "https://localhost/b", ""),
    ],
)
def test_variables(environ: dict[str, str], url: str, expected: str) -> None:
    assert proxy_of(url, environ) == expected


@pytest.mark.parametrize(
    ("rule", "spared"),
    [
        ("*", True),
        ("store.example.org", True),
        ("example.org", True),
        (".example.org", True),
        ("*.example.org", True),
        (" other , EXAMPLE.org ", True),
        ("store.example.org:9000", True),
        ("store.example.org:443", False),
        ("ample.org", False),
        ("10.0.0.0/8", False),
        ("", False),
    ],
)
@pytest.mark.parametrize("name", ["NO_PROXY", "no_proxy"])
def test_exceptions(rule: str, spared: bool, name: str) -> None:
    found = proxy_of("https://store.example.org:9000/b", {**PROXY, name: rule})
    assert found == ("" if spared else PROXY["HTTPS_PROXY"])


def test_networks_are_excepted() -> None:
    assert proxy_of("https://10.1.2.3/b", {**PROXY, "NO_PROXY": "10.0.0.0/8"}) == ""
    assert proxy_of("https://11.1.2.3/b", {**PROXY, "NO_PROXY": "10.0.0.0/8"}) == PROXY["HTTPS_PROXY"]


def test_a_proxy_of_another_kind_is_refused_in_words() -> None:
    with pytest.raises(UsageError, match="the variable HTTPS_PROXY: petctl supports only http:// proxies"):
        proxy_of("https://store.example.org", {"HTTPS_PROXY": "socks5://proxy:1080"})


def test_who_one_is_for_the_proxy() -> None:
    assert proxy_headers("http://ann:p%40ss@proxy:3128") == {"Proxy-Authorization": "Basic YW5uOnBAc3M="}
    assert proxy_headers("http://proxy:3128") == {}


@contextmanager
def proxy(server: int | None, answer: bytes = b"plain") -> Iterator[tuple[str, list[str]]]:
    """A proxy that leads everybody to one port of this machine, or answers itself; and what it was told."""
    listener = socket.create_server(("127.0.0.1", 0))
    told: list[str] = []

    def pump(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def serve() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                head = b""
                while b"\r\n\r\n" not in head:
                    head += client.recv(4096)
                told.append(head.decode())
                if server is None:
                    client.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(answer), answer))
                    client.close()
                    continue
                upstream = socket.create_connection(("127.0.0.1", server))
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                threading.Thread(target=pump, args=(upstream, client), daemon=True).start()
                threading.Thread(target=pump, args=(client, upstream), daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://ann:secret@127.0.0.1:{listener.getsockname()[1]}", told
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


@contextmanager
def tls_store(folder: Path) -> Iterator[tuple[int, ssl.SSLContext]]:
    made = make_certificate(["store.example.org"], [])
    (folder / "cert.pem").write_bytes(made.certificate)
    (folder / "key.pem").write_bytes(made.key)
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            connection = own.wrap_socket(listener.accept()[0], server_side=True)
            with connection:
                while connection.recv(65536):
                    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecret")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1], ssl.create_default_context(cafile=str(folder / "cert.pem"))
    finally:
        listener.close()


def test_a_node_reaches_its_store_through_the_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with tls_store(tmp_path) as (port, trusting), proxy(port) as (url, told):
        monkeypatch.setenv("HTTPS_PROXY", url)
        monkeypatch.setattr(http_client, "tls_context", lambda: trusting)
        asking = HttpClient()
        for _ in range(2):  # over one connection
            assert asking.once("GET", "https://store.example.org/bucket/x?sig=hidden").body == b"secret"
    assert len(told) == 1 and told[0].startswith("CONNECT store.example.org:443 ")
    assert "Proxy-Authorization: Basic YW5uOnNlY3JldA==" in told[0] and "sig=" not in told[0]


@pytest.fixture
def store_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store's name and address mean this machine, as a line in /etc/hosts would have it."""
    resolve = socket.getaddrinfo

    def resolved(host: object, *words: object, **more: object) -> object:
        return resolve("127.0.0.1" if host in ("store.example.org", "10.9.9.9") else host, *words, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("rule", ["store.example.org", ".example.org", "*"])
@pytest.mark.usefixtures("store_here")
def test_a_node_goes_round_the_proxy_where_no_proxy_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: str
) -> None:
    with tls_store(tmp_path) as (port, trusting), proxy(port) as (url, told):
        monkeypatch.setenv("HTTPS_PROXY", url)
        monkeypatch.setenv("NO_PROXY", rule)
        monkeypatch.setattr(http_client, "tls_context", lambda: trusting)
        assert HttpClient().once("GET", f"https://store.example.org:{port}/bucket/x").body == b"secret"
    assert told == []


@pytest.mark.usefixtures("store_here")
def test_code_is_downloaded_by_the_same_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("http_proxy", raising=False)
    with proxy(None) as (url, told), proxy(None) as (store, asked):
        monkeypatch.setenv("HTTP_PROXY", url)
        download("http://10.1.2.3:1/code.py", tmp_path / "code.py", 100)
        assert (tmp_path / "code.py").read_bytes() == b"plain"
        assert told[0].startswith("GET http://10.1.2.3:1/code.py HTTP/1.1")
        assert "Proxy-Authorization: Basic YW5uOnNlY3JldA==" in told[0]
        monkeypatch.setenv("NO_PROXY", "10.9.0.0/16")  # a network, which urllib's own rule does not know
        download(f"http://10.9.9.9:{urlsplit(store).port}/code.py", tmp_path / "code.py", 100)
    assert len(told) == 1 and asked[0].startswith("GET /code.py HTTP/1.1") and "Proxy-" not in asked[0]


@pytest.mark.usefixtures("store_here")
def test_a_coordinator_is_looked_up_by_the_same_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("http_proxy", raising=False)
    with proxy(None, b'{"address": "far:1"}') as (url, told), proxy(None, b'{"address": "near:2"}') as (here, asked):
        monkeypatch.setenv("HTTP_PROXY", url)
        assert resolve({"url": "http://10.1.2.3:1/place"}, 10) == ("far", 1)
        assert told[0].startswith("GET http://10.1.2.3:1/place HTTP/1.1")
        assert "Proxy-Authorization: Basic YW5uOnNlY3JldA==" in told[0]
        monkeypatch.setenv("NO_PROXY", "10.9.0.0/16")  # a network, which urllib's own rule does not know
        assert resolve({"url": f"http://10.9.9.9:{urlsplit(here).port}/place"}, 10) == ("near", 2)
    assert len(told) == 1 and asked[0].startswith("GET /place HTTP/1.1") and "Proxy-" not in asked[0]


def test_a_url_at_which_something_else_answers_names_no_coordinator() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            client, _ = listener.accept()
            with client:
                client.recv(4096)
                client.sendall(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with pytest.raises(Unreachable, match="no coordinator address at http://127"):
            resolve({"url": f"http://127.0.0.1:{listener.getsockname()[1]}/"}, 10)
        thread.join(10)


def test_code_over_tls_is_downloaded_through_the_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_PROXY", "no_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    with tls_store(tmp_path) as (port, _), proxy(port) as (url, told):
        monkeypatch.setenv("HTTPS_PROXY", url)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
        download("https://store.example.org/code.py", tmp_path / "code.py", 100)
    assert (tmp_path / "code.py").read_bytes() == b"secret"
    assert len(told) == 1 and told[0].startswith("CONNECT store.example.org:443 ")


def test_without_tls_the_proxy_is_told_the_whole_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with proxy(None) as (url, told):
        monkeypatch.setenv("HTTP_PROXY", url)
        assert HttpClient().once("GET", "http://store.example.org:8333/bucket/x").body == b"plain"
    assert told[0].startswith("GET http://store.example.org:8333/bucket/x HTTP/1.1")
    assert told[0].count("Host: store.example.org:8333") == 1
