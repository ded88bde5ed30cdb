"""Credentials from a real small program."""

from __future__ import annotations

import datetime
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from petctl.errors import UsageError
from petctl.kube.credential_plugin import LoginFailed
from petctl.kube.credentials import Access
from petctl.kube.kubeconfig import find_access

V1, BETA = "client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"
PROGRAM = f"""#!{sys.executable}
import json, os, pathlib, sys
here = pathlib.Path(__file__).parent
runs = here / "runs"
runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
(here / "asked.json").write_text(os.environ["KUBERNETES_EXEC_INFO"])
(here / "environment").write_text(os.environ.get("EXTRA", ""))
answer = json.loads((here / "answer.json").read_text())
if "token" in (answer["status"] or ()):
    answer["status"]["token"] += str(len(runs.read_text())) + "".join(sys.argv[1:])
print(json.dumps(answer))
"""


def access(folder: Path, status: Any, version: str = V1, program: str = PROGRAM, **fields: Any) -> Access:
    """How to reach a cluster whose credentials such a program makes."""
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / "login").write_text(program)
    (folder / "bin" / "login").chmod(0o755)
    answer = {"kind": "ExecCredential", "apiVersion": version, "status": status}
    (folder / "bin" / "answer.json").write_text(json.dumps(answer))
    described = {"apiVersion": version, "command": "./bin/login", "installHint": "Get it at example.com", **fields}
    cluster = {
        "server": "https://big.example",
        "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}],
    }
    whole = {
        "current-context": "work",
        "clusters": [{"name": "big", "cluster": cluster}],
        "users": [{"name": "ann", "user": {"exec": described}}],
        "contexts": [{"name": "work", "context": {"cluster": "big", "user": "ann"}}],
    }
    (folder / "config").write_text(yaml.safe_dump(whole))
    return find_access({"kubeconfig": str(folder / "config")})


def token(found: Access) -> str:
    return dict(found.credentials.headers())["Authorization"]


def after(seconds: float) -> str:
    moment = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.mark.parametrize("version", [V1, BETA])
def test_a_token_is_made_once_with_what_the_program_is_told(tmp_path: Path, version: str) -> None:
    fields: dict[str, Any] = {
        "args": ["-", "a"],
        "env": [{"name": "EXTRA", "value": "more"}],
        "provideClusterInfo": True,
    }
    found = access(tmp_path, {"token": "t", "expirationTimestamp": after(3600)}, version, **fields)
    assert not (tmp_path / "bin" / "runs").exists(), "it is run when it is needed, not before"
    assert token(found) == token(found) == "Bearer t1-a"
    asked = json.loads((tmp_path / "bin" / "asked.json").read_text())
    assert (asked["apiVersion"], asked["kind"]) == (version, "ExecCredential")
    assert asked["spec"] == {
        "interactive": False,
        "cluster": {"server": "https://big.example", "config": {"audience": "x"}},
    }
    assert (tmp_path / "bin" / "environment").read_text() == "more"


def test_a_token_that_has_run_out_or_was_not_accepted_is_made_anew(tmp_path: Path) -> None:
    found = access(tmp_path, {"token": "t", "expirationTimestamp": after(-1)})
    assert [token(found), token(found)] == ["Bearer t1", "Bearer t2"]
    (tmp_path / "bin" / "runs").unlink()
    found = access(tmp_path, {"token": "t"})
    assert [token(found), token(found)] == ["Bearer t1", "Bearer t1"]
    assert found.credentials.renew()
    assert token(found) == "Bearer t2"


def test_certificates(tmp_path: Path) -> None:
    found = access(tmp_path, {"clientCertificateData": "CERT", "clientKeyData": "KEY"})
    assert found.credentials.client_certificate() == ("CERT", "KEY")
    assert found.credentials.headers() == []


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (None, "it has no status"),
        ({}, "neither a token nor a certificate"),
        ({"clientKeyData": "KEY"}, "must come together"),
        ({"token": "t", "expirationTimestamp": "soon"}, "expirationTimestamp is 'soon', not a time"),
    ],
)
def test_answers_that_do_not_do(tmp_path: Path, status: Any, words: str) -> None:
    with pytest.raises(LoginFailed, match=words) as told:
        token(access(tmp_path, status))
    assert f"{tmp_path / 'config'} (context work): users[ann].user.exec" in str(told.value)


def test_an_answer_of_another_version(tmp_path: Path) -> None:
    found = access(tmp_path, {"token": "t"})
    (tmp_path / "bin" / "answer.json").write_text(json.dumps({"apiVersion": BETA, "status": {"token": "t"}}))
    with pytest.raises(LoginFailed, match=f"its apiVersion is '{BETA}'"):
        token(found)


def test_a_program_that_fails_is_quoted(tmp_path: Path) -> None:
    program = "#!/bin/sh\necho 'your session is over' >&2\nexit 3\n"
    with pytest.raises(LoginFailed, match=r"exit code 3: your session is over; log in again\. Get it at example.com"):
        token(access(tmp_path, {}, program=program))
    with pytest.raises(LoginFailed, match="it is not JSON; run it by hand"):
        token(access(tmp_path, {}, program="#!/bin/sh\necho hello\n"))


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LoginFailed, match=r"no-such-program was not found; Get it at example\.com"):
        token(access(tmp_path, {}, command="no-such-program"))


def test_a_program_that_must_ask_somebody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(
        LoginFailed, match=r"needs a terminal to ask the user .* no terminal; log in at a terminal first"
    ):
        token(access(tmp_path, {"token": "t"}, interactiveMode="Always"))
    assert token(access(tmp_path, {"token": "t"}, interactiveMode="Never")) == "Bearer t1"


def test_the_program_of_a_kubeconfig_that_others_can_change_is_never_run(tmp_path: Path) -> None:
    access(tmp_path, {"token": "t"})
    (tmp_path / "config").chmod(0o666)
    with pytest.raises(UsageError, match="can be changed by every user"):
        token(find_access({"kubeconfig": str(tmp_path / "config")}))
    assert not (tmp_path / "bin" / "runs").exists()
