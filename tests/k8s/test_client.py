"""petctl's own client of the API, against a real API server, kubelet and containerd."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import select
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Iterator

import pytest
import yaml

from petctl.kube import failures
from petctl.kube.api import Api, path
from petctl.kube.kubeconfig import find_access
from tests.k8s.cluster.cluster import Cluster
from tests.k8s.cluster.kubectl import pod

ROOT = Path(__file__).resolve().parents[2]
WITHIN = 120.0
MUCH = 10 << 20
LATE = "import sys; print('begun', flush=True); sys.stdin.readline(); print('ended', flush=True); sys.exit(3)"
# Reads MUCH, answers with its digest, then sends MUCH made from a seed; and says on its stdout that it listens.
EXCHANGE = f"""
import hashlib, random, socket
listener = socket.create_server(("0.0.0.0", 8000))
print("listening", flush=True)
while True:
    with listener.accept()[0] as peer:
        heard, size = hashlib.sha256(), 0
        while size < {MUCH}:
            data = peer.recv(1 << 16)
            if not data:
                break
            heard.update(data)
            size += len(data)
        print("heard", size, heard.hexdigest(), flush=True)
        peer.sendall(heard.digest() + random.Random(7).randbytes({MUCH}))
"""


@pytest.fixture
def api(cluster: Cluster) -> Iterator[Api]:
    """As the kubeconfig's own user."""
    with Api(find_access({"kubeconfig": str(cluster.kubeconfig)})) as found:
        yield found


@pytest.fixture
def running(cluster: Cluster, api: Api, namespace: str) -> str:
    """A pod that serves what EXCHANGE says."""
    api.create(path("pods", namespace), pod("served", cluster.image("3.11"), ["python3", "-u", "-c", EXCHANGE]))
    told(api, namespace, "served", b"listening")
    return "served"


def told(api: Api, namespace: str, name: str, words: bytes) -> None:
    """Waits until a pod has printed this."""
    await_phase(api, namespace, name, "Running")
    heard = b""
    for chunk in api.log(namespace, name, follow=True):
        heard += chunk
        if words in heard:
            return
    pytest.fail(f"{name} ended without {words!r}: {heard!r}")


def await_phase(api: Api, namespace: str, name: str, *phases: str) -> dict[str, Any]:
    """The pod, once it is so far: list, watch, and list anew where a version is gone."""
    deadline = time.monotonic() + WITHIN
    while True:
        found = api.list(path("pods", namespace), f"name={name}")
        for item in found:
            if item["status"]["phase"] in phases:
                return item
        try:
            for _, item in api.watch(path("pods", namespace), f"name={name}", found.version, 10):
                if item.get("status", {}).get("phase") in phases:
                    return item
        except failures.Gone:
            pass
        assert time.monotonic() < deadline, f"{name} is not {phases}: {found}"


def test_objects_come_change_and_go_and_a_watch_sees_it(api: Api, namespace: str) -> None:
    maps = path("configmaps", namespace)
    before = api.list(maps, "made=here")
    assert before == [] and before.version

    body = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "one", "labels": {"made": "here"}}}
    made = api.create(maps, {**body, "data": {"a": "1", "b": "2"}})
    assert made["metadata"]["namespace"] == namespace and made["metadata"]["uid"]
    assert api.get(path("configmaps", namespace, "one"))["data"] == {"a": "1", "b": "2"}
    with pytest.raises(failures.ObjectExists, match='configmaps "one" already exists'):
        api.create(maps, body)
    changed = api.patch(path("configmaps", namespace, "one"), {"data": {"a": None, "c": "3"}})
    assert changed["data"] == {"b": "2", "c": "3"}
    api.patch(path("configmaps", namespace, "one"), {"metadata": {"labels": {"more": "x"}}}, kind="strategic")
    stale = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"d": "4"}}
    with pytest.raises(failures.Conflict, match="has been modified"):
        api.patch(path("configmaps", namespace, "one"), stale)
    assert [item["metadata"]["name"] for item in api.list(maps, "made=here,more=x")] == ["one"]
    api.delete(path("configmaps", namespace, "one"))
    with pytest.raises(failures.NoSuchObject, match='configmaps "one" not found'):
        api.get(path("configmaps", namespace, "one"))

    seen = []
    for kind, item in api.watch(maps, "made=here", before.version, 30):
        if kind != "BOOKMARK":
            seen.append((kind, item["metadata"]["name"]))
        if kind == "DELETED":
            break
    assert seen == [("ADDED", "one"), ("MODIFIED", "one"), ("MODIFIED", "one"), ("DELETED", "one")]


def test_a_list_longer_than_a_page_is_whole(api: Api, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("petctl.kube.api.PAGE", 3)
    for number in range(8):
        body = {"kind": "ConfigMap", "apiVersion": "v1"}
        api.create(path("configmaps", namespace), {**body, "metadata": {"name": f"m{number}", "labels": {"own": "x"}}})
    names = [item["metadata"]["name"] for item in api.list(path("configmaps", namespace), "own=x")]
    assert names == [f"m{number}" for number in range(8)]


def test_what_is_invalid_is_told_field_by_field(api: Api, namespace: str) -> None:
    body = {"kind": "Job", "apiVersion": "batch/v1", "metadata": {"name": "UPPER"}}
    body["spec"] = {"template": {"spec": {"containers": [], "restartPolicy": "Always"}}}
    with pytest.raises(failures.Invalid) as refused:
        api.create(path("jobs", namespace), body)
    for field in ("metadata.name: ", "spec.template.spec.containers: Required value", "restartPolicy: "):
        assert field in str(refused.value)


def test_a_quota_is_told(cluster: Cluster, api: Api, namespace: str) -> None:
    quota = {
        "kind": "ResourceQuota",
        "apiVersion": "v1",
        "metadata": {"name": "small"},
        "spec": {"hard": {"pods": "0"}},
    }
    api.create(f"/api/v1/namespaces/{namespace}/resourcequotas", quota)
    for _, item in api.watch(f"/api/v1/namespaces/{namespace}/resourcequotas", timeout=WITHIN):
        if "hard" in item.get("status", {}):  # from then on it holds
            break
    with pytest.raises(failures.QuotaExceeded, match="exceeded quota: small"):
        api.create(path("pods", namespace), pod("x", cluster.image("3.11"), ["true"]))


def test_a_pod_that_has_not_begun_has_no_log(api: Api, namespace: str) -> None:
    missing = pod("waiting", "petctl.test/there-is-none:1", ["true"])
    missing["spec"]["containers"][0]["imagePullPolicy"] = "Never"
    api.create(path("pods", namespace), missing)
    for _, item in api.watch(path("pods", namespace), "name=waiting", timeout=WITHIN):
        if any("waiting" in each["state"] for each in item["status"].get("containerStatuses", [])):
            break
    with pytest.raises(failures.NotStarted, match="waiting to start"):
        next(api.log(namespace, "waiting", follow=True))
    with pytest.raises(failures.NotRunning, match="container not found"):
        api.execute(namespace, "waiting", ["true"])


def test_a_log_is_followed_and_a_command_feeds_the_pod(cluster: Cluster, api: Api, namespace: str) -> None:
    fed = 'mkfifo /tmp/feed && exec python3 -u -c "$0" <>/tmp/feed'
    api.create(path("pods", namespace), pod("late", cluster.image("3.9"), ["sh", "-c", fed, LATE]))
    await_phase(api, namespace, "late", "Running")
    log = api.log(namespace, "late", follow=True)
    heard = b""
    while b"begun" not in heard:
        heard += next(log)
    assert api.execute(namespace, "late", ["sh", "-c", "echo go > /tmp/feed"]) == 0
    heard += b"".join(log)
    assert heard == b"begun\nended\n"
    ended = await_phase(api, namespace, "late", "Failed")
    assert ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    assert b"".join(api.log(namespace, "late", tail=1)) == b"ended\n"
    with pytest.raises(failures.NotRunning, match="container not found"):
        api.execute(namespace, "late", ["true"])


def test_commands_have_input_output_and_exit_codes(api: Api, namespace: str, running: str, tmp_path: Path) -> None:
    def run(*argv: str, given: bytes | None = None) -> tuple[int, bytes, bytes]:
        (tmp_path / "in").write_bytes(given or b"")
        with (
            open(tmp_path / "in", "rb") as stdin,
            open(tmp_path / "out", "wb") as out,
            open(tmp_path / "err", "wb") as err,
        ):
            code = api.execute(namespace, running, argv, "main", False, stdin if given is not None else None, out, err)
        return code, (tmp_path / "out").read_bytes(), (tmp_path / "err").read_bytes()

    assert run("sh", "-c", 'echo "$0" "$1"; echo no >&2; exit 7', "a  b", "c&d") == (7, b"a  b c&d\n", b"no\n")
    assert run("true") == (0, b"", b"")
    assert run("sh", "-c", "kill -9 $$")[0] == 137
    much = os.urandom(3_000_000)
    assert run("cat", given=much) == (0, much, b"")
    assert run("sha256sum", given=b"") == (0, hashlib.sha256(b"").hexdigest().encode() + b"  -\n", b"")
    with pytest.raises(failures.CommandFailed, match="no-such-program"):
        run("no-such-program")
    with pytest.raises(failures.NoSuchObject, match='pods "nobody" not found'):
        api.execute(namespace, "nobody", ["true"])


def test_older_servers_speak_an_older_protocol(
    api: Api, namespace: str, running: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("petctl.kube.execute.PROTOCOLS", ("v4.channel.k8s.io",))
    with open(tmp_path / "out", "wb") as out:
        assert api.execute(namespace, running, ["sh", "-c", "echo here; exit 7"], stdout=out) == 7
    assert (tmp_path / "out").read_text() == "here\n"


TERMINAL = """
import sys
from petctl.kube.api import Api
from petctl.kube.kubeconfig import find_access
api = Api(find_access({"kubeconfig": sys.argv[1]}))
sys.exit(api.execute(sys.argv[2], sys.argv[3], ["sh", "-c", sys.argv[4]], tty=True, stdin=0, stdout=1, stderr=2))
"""
ASKING = """
trap 'exit 42' INT
until test "$(stty size)" = '31 97'; do sleep 0.1; done
echo waiting
while sleep 0.1; do :; done
"""


def test_a_command_with_a_terminal(cluster: Cluster, namespace: str, running: str) -> None:
    import termios

    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (31, 97))
    words = [sys.executable, "-c", TERMINAL, str(cluster.kubeconfig), namespace, running, ASKING]
    process = subprocess.Popen(words, stdin=slave, stdout=slave, stderr=slave, start_new_session=True, cwd=ROOT)
    os.close(slave)
    printed = b""
    try:
        while b"waiting" not in printed:
            assert select.select([master], [], [], WITHIN)[0], printed
            printed += os.read(master, 1000)
        os.write(master, b"\x03")
        assert process.wait(WITHIN) == 42
    finally:
        process.kill()
        process.wait()
        os.close(master)


def test_a_dialled_port_carries_much_both_ways(api: Api, namespace: str, running: str) -> None:
    import random

    sent, expected = os.urandom(MUCH), random.Random(7).randbytes(MUCH)
    with api.dial(namespace, running, 8000) as near:
        near.settimeout(WITHIN)
        sender = threading.Thread(target=near.sendall, args=(sent,))
        sender.start()
        heard = received(near)
        sender.join(WITHIN)
        assert near.failure is None
    assert heard[:32] == hashlib.sha256(sent).digest()
    assert heard[32:] == expected


def test_what_was_sent_before_a_close_arrives(api: Api, namespace: str, running: str) -> None:
    sent = os.urandom(1_000_000)
    with api.dial(namespace, running, 8000) as near:
        near.settimeout(WITHIN)
        near.sendall(sent)
    told(api, namespace, running, b"heard 1000000 " + hashlib.sha256(sent).hexdigest().encode())


def test_a_port_where_nobody_listens_ends_with_its_reason(api: Api, namespace: str, running: str) -> None:
    with api.dial(namespace, running, 9) as near:
        near.settimeout(WITHIN)
        assert received(near) == b""
        assert "port 9 of pod served: " in str(near.failure) and "refused" in str(near.failure)


def test_a_pod_that_is_not_there_has_no_ports(api: Api, namespace: str) -> None:
    with pytest.raises(failures.NoSuchObject, match='pods "nobody" not found'):
        api.dial(namespace, "nobody", 8000)


def received(near: socket.socket) -> bytes:
    """All until the end."""
    parts = []
    while data := near.recv(1 << 20):
        parts.append(data)
    return b"".join(parts)


def test_who_has_no_rights_hears_which(cluster: Cluster, api: Api, namespace: str, tmp_path: Path) -> None:
    """As a service account, with a token that the API server made for it."""
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    api.create(accounts, {"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": "weak"}})
    request = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {"expirationSeconds": 600}}
    token = api.create(f"{accounts}/weak/token", request)["status"]["token"]
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    for user in config["users"]:
        user["user"] = {"token": token}
    (tmp_path / "weak").write_text(json.dumps(config))
    user = f"system:serviceaccount:{namespace}:weak"
    with Api(find_access({"kubeconfig": str(tmp_path / "weak"), "namespace": namespace})) as weak:
        with pytest.raises(failures.Forbidden) as refused:
            weak.list(path("jobs", namespace))
        assert f"'{user}' may not list jobs.batch in the namespace '{namespace}'" in str(refused.value)
        with pytest.raises(failures.Forbidden, match=r"may not (get|create) pods/exec"):
            weak.execute(namespace, "nobody", ["true"])
        with pytest.raises(failures.Forbidden, match=r"may not (get|create) pods/portforward"):
            weak.dial(namespace, "nobody", 80)
    for user in config["users"]:
        user["user"] = {"token": "wrong"}
    (tmp_path / "wrong").write_text(json.dumps(config))
    with (
        Api(find_access({"kubeconfig": str(tmp_path / "wrong")})) as stranger,
        pytest.raises(failures.Unauthorised, match="log in again"),
    ):
        stranger.list(path("pods", namespace))
