"""Requests against a real server, on the days when something goes wrong."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from petctl.clusters.certificate import Certificate
from petctl.errors import UsageError
from petctl.kube import failures
from petctl.kube.api import Api, path
from petctl.kube.credentials import Access, Credentials, Nobody
from tests.unit.clusters.kubernetes.servers import (
    WITHIN,
    Handler,
    Peer,
    access_to,
    certificate,
    server_context,
    serving,
    status,
    url_of,
    websockets,
)

PODS = "/api/v1/namespaces/team/pods"


@pytest.fixture(scope="module")
def made() -> Certificate:
    return certificate()


def hello(handler: Handler) -> None:
    handler.reply({"kind": "Pod", "token": handler.headers["Authorization"], "path": handler.path})


def test_paths() -> None:
    assert path("pods", "team", "x") == "/api/v1/namespaces/team/pods/x"
    assert path("jobs", "team") == "/apis/batch/v1/namespaces/team/jobs"
    assert path("pods") == "/api/v1/pods"
    assert path("namespaces", name="team") == "/api/v1/namespaces/team"
    assert path("namespaces", "team", "team") == "/api/v1/namespaces/team"
    assert path("secrets", "team", "a/../b") == "/api/v1/namespaces/team/secrets/a%2F..%2Fb"
    with pytest.raises(ValueError, match="wishes"):
        path("wishes")


def test_one_connection_with_tls_serves_many_requests(made: Certificate) -> None:
    with serving(hello, made) as server, Api(access_to(url_of(server, "https"), made)) as api:
        for _ in range(3):
            assert api.get(PODS, fieldSelector="a=b,c=d")["token"] == "Bearer sesame"
        assert server.connections == 1
        assert set(server.requests) == {f"GET {PODS}?fieldSelector=a%3Db%2Cc%3Dd"}


def test_no_token_goes_over_a_connection_without_tls(made: Certificate) -> None:
    with serving(hello) as server, Api(access_to(url_of(server, "http"))) as api:
        assert api.get(PODS)["token"] is None


def test_each_thread_at_work_has_its_own_connection(made: Certificate) -> None:
    together = threading.Barrier(4, timeout=WITHIN)

    def script(handler: Handler) -> None:
        together.wait()  # only if all four are there at once
        handler.reply({"path": handler.path})

    found: list[str] = []
    with serving(script, made) as server, Api(access_to(url_of(server, "https"), made)) as api:
        threads = [threading.Thread(target=lambda n=n: found.append(api.get(f"/{n}")["path"])) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WITHIN)
    assert sorted(found) == ["/0", "/1", "/2", "/3"]


def test_a_server_whose_certificate_nobody_vouches_for(made: Certificate) -> None:
    with serving(hello, made) as server:
        url = url_of(server, "https")
        with pytest.raises(failures.ServerUnreachable, match=r"certificate is not trusted \(self.signed"):
            Api(access_to(url)).get(PODS)
        with pytest.raises(failures.ServerUnreachable, match=r"certificate is not trusted \(Hostname mismatch"):
            Api(access_to(url, made, server_name="other")).get(PODS)
        assert Api(access_to(url, made, server_name="localhost")).get(PODS)
        assert Api(access_to(url, verify=False)).get(PODS)
        with pytest.raises(UsageError, match=r"~/x: the certificate-authority of context c is no certificate"):
            Api(access_to(url, authority="nonsense", source="~/x", context="c")).get(PODS)


def test_a_client_certificate_is_presented_and_leaves_no_file(
    made: Certificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ssl
    import tempfile

    own = certificate()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seen: list[Any] = []

    def script(handler: Handler) -> None:
        seen.append(handler.connection.getpeercert(binary_form=True))
        handler.reply({})

    with serving(script) as server:
        context = server_context(made)
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=own.certificate.decode())
        server.socket = context.wrap_socket(server.socket, server_side=True)
        credentials = Credentials(certificate=(own.certificate.decode(), own.key.decode()))
        Api(access_to(url_of(server, "https"), made, credentials=credentials)).get(PODS)
        wrong = Credentials(certificate=(own.certificate.decode(), made.key.decode()))
        with pytest.raises(UsageError, match="client certificate and key of context c cannot be used"):
            Api(access_to(url_of(server, "https"), made, credentials=wrong, context="c")).get(PODS)
    assert seen == [ssl.PEM_cert_to_DER_cert(own.certificate.decode())]
    assert list(tmp_path.iterdir()) == []


def test_nobody_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(failures.ServerUnreachable, match=rf"cannot reach .*{port} \(context c\): .*refused") as told:
        Api(access_to(f"https://127.0.0.1:{port}", context="c")).get(PODS)
    assert told.value.code == 6


@pytest.mark.parametrize("kept", [False, True])
def test_an_answer_that_does_not_come_is_waited_for_as_long_as_is_wanted(kept: bool) -> None:
    gone = threading.Event()

    def script(handler: Handler) -> None:
        if handler.path == "/well":
            handler.reply({})
        else:
            gone.wait(WITHIN)

    with serving(script) as server, Api(access_to(url_of(server), answer_within=0.2)) as api:
        if kept:
            api.get("/well")
        with pytest.raises(failures.ServerUnreachable, match="no answer in time"):
            api.get("/silence")
        gone.set()


def test_whoever_counts_hears_of_every_request_but_streams() -> None:
    def script(handler: Handler) -> None:
        page = {"items": [{}], "metadata": {"continue": "" if "continue=" in handler.path else "more"}}
        handler.reply(page if handler.command == "GET" and "watch" not in handler.path else {})

    asked: list[str] = []
    with serving(script) as server, Api(access_to(url_of(server)), asked.append) as api:
        assert len(api.list(PODS)) == 2
        api.create(PODS, {})
        api.patch(f"{PODS}/a", {})
        api.delete(f"{PODS}/a")
        list(api.log("team", "a"))
    assert asked == ["GET", "GET", "POST", "PATCH", "DELETE"]


def test_a_kept_connection_that_the_server_has_closed(made: Certificate) -> None:
    def script(handler: Handler) -> None:
        handler.reply({"ok": True})
        handler.close_connection = True

    with serving(script, made) as server, Api(access_to(url_of(server, "https"), made)) as api:
        for _ in range(3):
            assert api.create(PODS, {})["ok"]
            assert server.finished.acquire(timeout=WITHIN)
        assert len(server.requests) == server.connections == 3


def test_a_kept_connection_that_closes_under_the_request() -> None:
    def script(handler: Handler) -> None:
        if len(server.requests) % 2 == 0:  # every second one is heard, and not answered
            handler.close_connection = True
            return
        handler.reply({"number": len(server.requests)})

    with serving(script) as server, Api(access_to(url_of(server))) as api:
        assert api.get(PODS)["number"] == 1
        assert api.get(PODS)["number"] == 3, "asked again"
        with pytest.raises(failures.ServerUnreachable, match="it may have been done"):
            api.create(PODS, {"metadata": {}})
        assert server.requests.count(f"POST {PODS}") == 1, "it may have been done"


def test_a_connection_that_closes_at_the_first_request_is_not_tried_again() -> None:
    def script(handler: Handler) -> None:
        handler.close_connection = True

    with serving(script) as server, Api(access_to(url_of(server))) as api:
        with pytest.raises(failures.ServerUnreachable, match="the connection ended in the middle of GET /api"):
            api.get(PODS)
        assert len(server.requests) == 1


def test_a_refusal_before_everything_was_sent_is_heard() -> None:
    def script(peer: Peer) -> None:
        body = json.dumps(status(413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728")).encode()
        peer.socket.sendall(b"HTTP/1.1 413 Too large\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        peer.socket.close()

    with websockets(script) as url, pytest.raises(failures.Invalid, match="limit is 3145728"):
        Api(access_to(url)).create(PODS, {"data": "x" * 8_000_000})


def test_half_an_answer_is_no_answer() -> None:
    def script(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "100")
        handler.end_headers()
        handler.wfile.write(b'{"kind":')
        handler.close_connection = True

    with serving(script) as server, pytest.raises(failures.ServerUnreachable, match="in the middle of GET"):
        Api(access_to(url_of(server))).get(PODS)


def test_objects_are_made_changed_and_removed() -> None:
    seen: list[tuple[str, str, Any]] = []

    def script(handler: Handler) -> None:
        seen.append((handler.command, handler.headers["Content-Type"], json.loads(handler.body)))
        handler.reply({"kind": "Pod"}, 201 if handler.command == "POST" else 200)

    with serving(script) as server, Api(access_to(url_of(server) + "/k8s/clusters/c-1")) as api:
        api.create(PODS, {"a": 1})
        api.patch(f"{PODS}/x", {"b": None})
        api.patch(f"{PODS}/x", {"c": 2}, kind="strategic")
        api.delete(f"{PODS}/x", grace=0)
        assert server.requests[0] == f"POST /k8s/clusters/c-1{PODS}", "some servers are behind a path"
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background", "gracePeriodSeconds": 0}
    assert seen == [
        ("POST", "application/json", {"a": 1}),
        ("PATCH", "application/merge-patch+json", {"b": None}),
        ("PATCH", "application/strategic-merge-patch+json", {"c": 2}),
        ("DELETE", "application/json", options),
    ]


def test_a_list_is_read_page_by_page_and_from_the_beginning_when_the_rest_is_gone() -> None:
    refused = threading.Event()

    def script(handler: Handler) -> None:
        query = {name: values[0] for name, values in parse_qs(urlsplit(handler.path).query).items()}
        assert query["limit"] == "500" and query["labelSelector"] == "a=b"
        page = int(query.get("continue", "0"))
        if page == 1 and not refused.is_set():
            refused.set()
            handler.refuse(410, "Expired", "The provided continue parameter is too old")
            return
        going_on = {"continue": str(page + 1)} if page < 2 else {}
        items = [{"metadata": {"name": f"{page}-{number}"}} for number in range(2)]
        handler.reply({"metadata": {"resourceVersion": "77", **going_on}, "items": items})

    with serving(script) as server, Api(access_to(url_of(server))) as api:
        found = api.list(PODS, "a=b")
        assert [item["metadata"]["name"] for item in found] == ["0-0", "0-1", "1-0", "1-1", "2-0", "2-1"]
        assert found.version == "77"
        assert len(server.requests) == 5 and server.connections == 1


def test_a_watch_gives_what_happens_and_explains_that_a_version_is_gone() -> None:
    events = [
        {"type": "ADDED", "object": {"metadata": {"name": "a"}}},
        {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}},
        {"type": "ERROR", "object": status(410, "Expired", "too old resource version: 5 (9)")},
    ]
    text = b"".join(json.dumps(event).encode() + b"\n" for event in events)

    def script(handler: Handler) -> None:
        handler.begin()
        for place in range(0, len(text), 7):  # events do not care for chunks
            handler.chunk(text[place : place + 7])
        handler.chunk(b"")

    with serving(script) as server, Api(access_to(url_of(server))) as api:
        watch = api.watch(PODS, "a=b", "5", 30)
        assert next(watch) == ("ADDED", {"metadata": {"name": "a"}})
        assert next(watch)[0] == "BOOKMARK"
        with pytest.raises(failures.Gone, match="too old resource version: 5"):
            next(watch)
        query = parse_qs(urlsplit(server.requests[0]).query)
        assert query["resourceVersion"] == ["5"] and query["timeoutSeconds"] == ["30"]
        assert query["labelSelector"] == ["a=b"] and query["allowWatchBookmarks"] == ["true"]


def test_a_watch_in_which_nothing_happens_ends_in_time() -> None:
    over = threading.Event()

    def script(handler: Handler) -> None:
        if "watch" not in handler.path:
            handler.reply({"kind": "Pod"})
            return
        handler.begin()
        handler.chunk(b'{"type": "ADDED", "object": {}}\n')
        over.wait(WITHIN)
        handler.close_connection = True

    with serving(script) as server, Api(access_to(url_of(server))) as api:
        try:
            assert [kind for kind, _ in api.watch(PODS, timeout=0.2)] == ["ADDED"]
            assert api.get(PODS)["kind"] == "Pod"
        finally:
            over.set()


def test_a_watch_that_is_cut_is_an_error() -> None:
    def script(handler: Handler) -> None:
        handler.begin()
        handler.chunk(b'{"type": "ADDED", "object": {}}\n')
        handler.close_connection = True

    with serving(script) as server, Api(access_to(url_of(server))) as api:
        watch = api.watch(PODS)
        next(watch)
        with pytest.raises(failures.ServerUnreachable, match="in the middle of a watch"):
            next(watch)


def test_a_log_comes_as_it_is_written_and_its_connection_is_kept() -> None:
    first_seen = threading.Event()

    def script(handler: Handler) -> None:
        if "/log" not in handler.path:
            handler.reply({})
            return
        handler.begin()
        handler.chunk(b"first\n")
        assert first_seen.wait(WITHIN)
        handler.chunk(b"second\xff")
        handler.chunk(b"")

    with serving(script) as server, Api(access_to(url_of(server))) as api:
        log = api.log("team", "x", container="main", follow=True, tail=5, since_time="2026-01-01T00:00:00Z")
        assert next(log) == b"first\n"
        first_seen.set()
        assert b"".join(log) == b"second\xff"
        api.get(PODS)
        assert server.connections == 1
        query = parse_qs(urlsplit(server.requests[0]).query)
        assert query == {
            "container": ["main"],
            "follow": ["true"],
            "tailLines": ["5"],
            "sinceTime": ["2026-01-01T00:00:00Z"],
        }


def test_a_log_of_a_server_that_closes_after_each_answer() -> None:
    def script(handler: Handler) -> None:
        handler.reply(b"all of it\n", Connection="close")

    with serving(script) as server, Api(access_to(url_of(server))) as api:
        assert b"".join(api.log("team", "x", follow=True)) == b"all of it\n"


def test_who_stops_reading_a_log_closes_its_connection() -> None:
    def script(handler: Handler) -> None:
        handler.begin()
        try:
            while True:
                handler.chunk(b"x" * 100_000)
        except OSError:
            handler.close_connection = True

    with serving(script) as server, Api(access_to(url_of(server))) as api:
        log = api.log("team", "x", follow=True)
        next(log)
        log.close()  # type: ignore[attr-defined]
        assert server.finished.acquire(timeout=WITHIN)


def test_a_log_that_is_refused(made: Certificate) -> None:
    def script(handler: Handler) -> None:
        handler.refuse(400, "BadRequest", 'container "main" in pod "x" is waiting to start: ContainerCreating')

    with serving(script) as server, pytest.raises(failures.NotStarted, match="waiting to start"):
        next(Api(access_to(url_of(server))).log("team", "x"))


def test_a_busy_server_is_asked_again_when_it_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("petctl.kube.requests.time.sleep", pauses.append)

    def script(handler: Handler) -> None:
        if len(server.requests) < 3:
            handler.reply(status(429, "TooManyRequests", "too many"), 429, Retry_After="2")
        elif "slow" in handler.path:
            handler.reply(status(429, "TooManyRequests", "too many"), 429, Retry_After="60")
        else:
            handler.reply({"ok": True})

    with serving(script) as server, Api(access_to(url_of(server))) as api:
        assert api.get(PODS)["ok"]
        assert pauses == [2.0, 2.0]
        with pytest.raises(failures.ServerUnreachable, match="too many"):
            api.get("/slow")


class Changing(Nobody):
    """Tokens that are made anew when one was not accepted."""

    number = 1

    def token(self) -> str:
        return f"token-{self.number}"

    def renew(self) -> bool:
        self.number += 1
        return True


def test_credentials_that_have_expired_are_made_anew_once(made: Certificate) -> None:
    good = "Bearer token-2"

    def script(handler: Handler) -> None:
        if handler.headers["Authorization"] == good:
            handler.reply({"ok": True})
        else:
            handler.refuse(401, "Unauthorized", "Unauthorized")

    with serving(script, made) as server:
        with Api(access_to(url_of(server, "https"), made, credentials=Credentials(identity=Changing()))) as api:
            assert api.get(PODS)["ok"]
        good = "Bearer never"
        with (
            Api(access_to(url_of(server, "https"), made, credentials=Credentials(identity=Changing()))) as api,
            pytest.raises(failures.Unauthorised, match="log in again"),
        ):
            api.get(PODS)
        assert len(server.requests) == 4
        with pytest.raises(failures.Unauthorised):
            Api(access_to(url_of(server, "https"), made)).get(PODS)
        assert len(server.requests) == 5, "a fixed token does not get better"


def test_through_a_proxy(made: Certificate) -> None:
    asked: list[str] = []

    def proxy() -> None:
        client, _ = listener.accept()
        with client:
            client.settimeout(WITHIN)
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += client.recv(1)
            asked.append(head.decode())
            host, _, port = head.split()[1].decode().rpartition(":")
            with socket.create_connection((host, int(port)), WITHIN) as far:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                back = threading.Thread(target=copy, args=(far, client))
                back.start()
                copy(client, far)
                back.join(WITHIN)

    def copy(source: socket.socket, target: socket.socket) -> None:
        while data := source.recv(65536):
            target.sendall(data)
        with contextlib.suppress(OSError):  # it has gone first
            target.shutdown(socket.SHUT_WR)

    with serving(hello, made) as server, socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=proxy)
        thread.start()
        url = f"http://ann:p%40ss@127.0.0.1:{listener.getsockname()[1]}"
        with Api(access_to(url_of(server, "https"), made, proxy=url)) as api:
            assert api.get(PODS)["kind"] == "Pod"
        thread.join(WITHIN)
    assert asked[0].startswith("CONNECT 127.0.0.1:")
    assert "Proxy-Authorization: Basic YW5uOnBAc3M=" in asked[0]


def test_a_proxy_that_is_not_there_is_named_without_its_password(made: Certificate) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    access: Access = access_to("https://big.example", proxy=f"http://ann:secret@127.0.0.1:{port}")
    with pytest.raises(failures.ServerUnreachable, match=rf"through the proxy http://127.0.0.1:{port}\)") as told:
        Api(access).get(PODS)
    assert "secret" not in str(told.value)


def test_importing_it_imports_neither_ssl_nor_yaml() -> None:
    code = "import sys, petctl.kube.api, petctl.kube.kubeconfig; print(*sys.modules)"
    words = [sys.executable, "-c", code]
    loaded = set(subprocess.run(words, capture_output=True, text=True, check=True, env=os.environ).stdout.split())
    assert "petctl.kube.requests" in loaded
    assert not loaded & {"ssl", "http.client", "yaml", "asyncio", "subprocess", "msgspec", "click", "socket"}
