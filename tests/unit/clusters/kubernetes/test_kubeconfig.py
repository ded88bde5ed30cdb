"""Kubeconfig files in all their forms, and a pod's service account."""

from __future__ import annotations

import base64
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from petctl.errors import UsageError
from petctl.kube import kubeconfig
from petctl.kube.kubeconfig import find_access

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n"


@pytest.fixture(autouse=True)
def nothing_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No kubeconfig, proxy or service account of the machine that tests."""
    for name in list(os.environ):
        if name.startswith("KUBE") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(kubeconfig, "SERVICE_ACCOUNT", tmp_path / "account")


def config(
    cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None, context: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A whole kubeconfig with one of each."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "work",
        "clusters": [{"name": "big", "cluster": {"server": "https://big.example:6443", **(cluster or {})}}],
        "users": [{"name": "ann", "user": user or {}}],
        "contexts": [{"name": "work", "context": {"cluster": "big", "user": "ann", **(context or {})}}],
    }


def written(path: Path, value: dict[str, Any]) -> dict[str, str]:
    """The settings that lead to a kubeconfig with this content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(value))
    return {"kubeconfig": str(path)}


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def headers(access: Any) -> dict[str, str]:
    return dict(access.credentials.headers())


def refusal(tmp_path: Path, value: dict[str, Any], **settings: str) -> str:
    """The sentence that this kubeconfig ends in."""
    with pytest.raises(UsageError) as told:
        find_access({**written(tmp_path / "config", value), **settings})
    return str(told.value)


def test_the_least_there_can_be(tmp_path: Path) -> None:
    access = find_access(written(tmp_path / "config", config()))
    assert (access.server, access.namespace, access.context) == ("https://big.example:6443", "default", "work")
    assert access.verify and not access.authority and not access.proxy and not headers(access)
    assert access.credentials.client_certificate() is None


def test_files_are_relative_to_the_kubeconfig_and_data_wins(tmp_path: Path) -> None:
    (tmp_path / "pki").mkdir()
    (tmp_path / "pki" / "ca.crt").write_text("# Česká pošta\n" + PEM)
    (tmp_path / "key.pem").write_text(KEY)
    cluster = {"certificate-authority": "pki/ca.crt", "tls-server-name": "kubernetes"}
    user = {"client-certificate-data": encoded(PEM), "client-certificate": "missing", "client-key": "key.pem"}
    access = find_access(written(tmp_path / "config", config(cluster, user, {"namespace": "team"})))
    assert (access.authority, access.server_name, access.namespace) == ("# esk pota\n" + PEM, "kubernetes", "team")
    assert access.credentials.client_certificate() == (PEM, KEY)
    assert find_access({"kubeconfig": str(tmp_path / "config"), "namespace": "mine"}).namespace == "mine"


def test_a_password_and_a_server_that_is_not_checked(tmp_path: Path) -> None:
    access = find_access(
        written(
            tmp_path / "config",
            config({"insecure-skip-tls-verify": True}, {"username": "ann", "password": "pass: word"}),
        )
    )
    assert not access.verify
    assert headers(access) == {"Authorization": "Basic " + encoded("ann:pass: word")}


def test_a_token_and_whom_to_act_as(tmp_path: Path) -> None:
    user = {"token": "t0", "as": "bob", "as-groups": ["a", "b"], "as-uid": "7", "as-user-extra": {"scope/x": ["1"]}}
    found = find_access(written(tmp_path / "config", config(user=user))).credentials.headers()
    assert found == [
        ("Authorization", "Bearer t0"),
        ("Impersonate-User", "bob"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-scope%2Fx", "1"),
    ]


def test_a_token_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one\n")
    access = find_access(written(tmp_path / "config", config(user={"tokenFile": "token", "token": "spare"})))
    assert headers(access)["Authorization"] == "Bearer one"
    (tmp_path / "new").write_text("two")
    (tmp_path / "new").rename(token)
    assert headers(access)["Authorization"] == "Bearer two"
    assert not access.credentials.renew(), "it is still the same: asking again would be in vain"
    token.unlink()
    assert headers(access)["Authorization"] == "Bearer two", "while it is being replaced, the last one serves"


def test_a_token_file_that_cannot_be_read(tmp_path: Path) -> None:
    settings = written(tmp_path / "config", config(user={"tokenFile": "none"}))
    with pytest.raises(UsageError, match=r"users\[ann\].user.tokenFile: cannot read the token in .*none"):
        headers(find_access(settings))
    settings = written(tmp_path / "config", config(user={"tokenFile": "none", "token": "spare"}))
    assert headers(find_access(settings))["Authorization"] == "Bearer spare"


def test_of_several_files_the_first_that_names_something_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "a" / "one", {"users": [{"name": "ann", "user": {"token": "first"}}]})
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "ca").write_text(PEM)
    written(tmp_path / "b" / "two", config({"certificate-authority": "ca"}, {"token": "second"}))
    other = config({"server": "https://other.example"}, {"token": "third"})
    other["contexts"].append({"name": "more", "context": {"cluster": "big", "user": "ann", "namespace": "n"}})
    other["current-context"] = "more"
    written(tmp_path / "three", other)
    names = [tmp_path / "a" / "one", tmp_path / "missing", "", tmp_path / "b" / "two", tmp_path / "three"]
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, names)))
    access = find_access({})
    assert (access.context, access.server, access.authority) == ("work", "https://big.example:6443", PEM)
    assert headers(access)["Authorization"] == "Bearer first"
    assert find_access({"context": "more"}).namespace == "n"


def test_the_usual_place_and_json_are_understood(tmp_path: Path) -> None:
    place = tmp_path / "home" / ".kube" / "config"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps(config(context={"namespace": "json"})))
    assert find_access({}).namespace == "json"


def test_nothing_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"KUBECONFIG is not set and .*/home/.kube/config does not exist; get a"):
        find_access({})
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "gone"))
    with pytest.raises(UsageError, match="gone does not exist; KUBECONFIG names it"):
        find_access({})
    with pytest.raises(UsageError, match="nowhere does not exist; `kubeconfig` of this cluster"):
        find_access({"kubeconfig": str(tmp_path / "nowhere")})


def test_in_a_pod_its_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    account = tmp_path / "account"
    account.mkdir()
    for name, text in {"token": "pods", "ca.crt": PEM, "namespace": "here"}.items():
        (account / name).write_text(text)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    access = find_access({})
    assert (access.server, access.namespace, access.authority) == ("https://[fd00::1]:6443", "here", PEM)
    assert headers(access)["Authorization"] == "Bearer pods"
    (account / "token").write_text("newer")
    assert headers(access)["Authorization"] == "Bearer newer"
    with pytest.raises(UsageError, match="no context 'x': this pod has a service account"):
        find_access({"context": "x"})


@pytest.mark.parametrize(
    ("cluster", "user", "words"),
    [
        ({"server": ""}, {}, r"clusters\[big\].cluster.server is missing; add it"),
        ({"server": "big:6443"}, {}, "must begin with https://"),
        (
            {"certificate-authority": "none"},
            {},
            r"cluster.certificate-authority: cannot read .*none: No such",
        ),
        ({"certificate-authority-data": "%%"}, {}, "certificate-authority-data is not the base64 of a PEM file"),
        ({"certificate-authority": "config"}, {}, "certificate-authority .* is not a PEM file"),
        ({"insecure-skip-tls-verify": "yes"}, {}, "insecure-skip-tls-verify must be true or false, not 'yes'"),
        (
            {"proxy-url": "socks5://proxy:1080"},
            {},
            r"cluster.proxy-url: .*only http:// proxies, not socks5",
        ),
        ({}, {"token": 1234}, r"users\[ann\].user.token must be text, not int; put it in quotes"),
        ({}, {"client-certificate-data": encoded(PEM)}, r"client-key \(or client-key-data\) is missing"),
        ({}, {"client-key-data": encoded(KEY)}, r"client-certificate \(or client-certificate-data\) is missing"),
        ({}, {"auth-provider": {"name": "gcp"}}, r"auth-provider \(gcp\) is no longer part of Kubernetes; create"),
        ({}, {"exec": {"command": "x"}}, r"users\[ann\].user.exec.apiVersion is missing"),
        ({}, {"exec": {"command": "x", "apiVersion": "v9"}}, "exec.apiVersion is 'v9'; petctl speaks client.auth"),
        ({}, {"exec": []}, r"users\[ann\].user.exec must be a mapping, not list"),
        ({}, {"as-groups": "one"}, "as-groups must be a list, not str"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], words: str) -> None:
    said = refusal(tmp_path, config(cluster, user))
    assert re.search(words, said), said
    assert f"{tmp_path / 'config'} (context work): " in said


def test_names_that_lead_nowhere(tmp_path: Path) -> None:
    said = refusal(tmp_path, config(), context="wrok")
    assert "there is no context 'wrok'" in said and "there are: work" in said
    assert "there is no cluster 'small' (" in refusal(tmp_path, config(context={"cluster": "small"}))
    assert "contexts[work].context.user" in refusal(tmp_path, config(context={"user": "eve"}))
    assert "no context is selected" in refusal(tmp_path, {**config(), "current-context": ""})
    assert "it has no contexts at all" in refusal(tmp_path, {})
    assert "every entry needs a name" in refusal(tmp_path, {**config(), "users": [{"user": {}}]})


def test_a_file_that_is_no_yaml_is_not_quoted(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("users:\n- token: 'sesame\n")
    with pytest.raises(UsageError, match=r"is not YAML: line 3, column 1") as told:
        find_access({"kubeconfig": str(tmp_path / "config")})
    assert "sesame" not in str(told.value)
    (tmp_path / "config").write_text("- a list")
    with pytest.raises(UsageError, match="must be a mapping, not list"):
        find_access({"kubeconfig": str(tmp_path / "config")})


def test_proxies_of_the_kubeconfig_and_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = written(tmp_path / "config", config({"proxy-url": "http://mine:3128"}))
    assert find_access(settings).proxy == "http://mine:3128"
    settings = written(tmp_path / "config", config())
    monkeypatch.setenv("HTTPS_PROXY", "theirs:8080")
    assert find_access(settings).proxy == "http://theirs:8080"
    for rule in ("*", ".example", "big.example", "other, big.example:6443", "*.example"):
        monkeypatch.setenv("NO_PROXY", rule)
        assert find_access(settings).proxy == "", rule
    for rule in ("ig.example", "bigger.example", "10.0.0.0/8"):
        monkeypatch.setenv("NO_PROXY", rule)
        assert find_access(settings).proxy == "http://theirs:8080", rule
    settings = written(tmp_path / "config", config({"server": "https://10.1.2.3:6443"}))
    assert find_access(settings).proxy == ""
    monkeypatch.delenv("NO_PROXY")
    settings = written(tmp_path / "config", config({"server": "https://127.0.0.1:6443"}))
    assert find_access(settings).proxy == ""


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    user = {"token": "sesame", "client-key-data": encoded(KEY), "client-certificate-data": encoded(PEM)}
    shown = repr(find_access(written(tmp_path / "config", config(user=user))))
    assert "sesame" not in shown and "KEY" not in shown and "work" in shown


@pytest.mark.parametrize(
    "user",
    [
        {"token": "t0"},
        {"username": "ann", "password": "p"},
        {"tokenFile": "token"},
        {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "aws"}},
    ],
)
def test_nobody_proves_who_one_is_without_tls(tmp_path: Path, user: dict[str, Any]) -> None:
    settings = written(tmp_path / "config", config({"server": "http://big.example:8080"}, user))
    with pytest.raises(UsageError, match=r"cluster\.server is 'http://big\.example:8080': .* make it https://"):
        find_access(settings)
    for here in ("http://127.0.0.1:8001", "http://localhost:8001", "http://[::1]:8001"):  # kubectl proxy
        found = find_access(written(tmp_path / "config", config({"server": here}, user)))
        assert headers(found) == {} and not found.credentials.any
    for elsewhere in ("http://127.0.0.1.example:8001", "http://localhost.example"):
        with pytest.raises(UsageError, match="make it https"):
            find_access(written(tmp_path / "config", config({"server": elsewhere}, user)))


def test_a_server_without_tls_can_be_used_by_nobody_in_particular(tmp_path: Path) -> None:
    assert find_access(written(tmp_path / "config", config({"server": "http://big.example"}))).server


@pytest.mark.parametrize("named_by", ["petctl.yaml", "KUBECONFIG", "nothing"])
def test_a_kubeconfig_that_others_can_change_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named_by: str
) -> None:
    path = tmp_path / "home" / ".kube" / "config"
    settings = written(path, config())
    if named_by != "petctl.yaml":
        settings = {}
    if named_by == "KUBECONFIG":
        monkeypatch.chdir(path.parent)
        monkeypatch.setenv("KUBECONFIG", path.name)
    for mode in (0o600, 0o644):  # group and others may read it, as kubectl allows
        path.chmod(mode)
        assert find_access(settings).context == "work"
    path.chmod(0o646)
    with pytest.raises(UsageError, match="can be changed by every user \\(mode 0646\\)") as refused:
        find_access(settings)
    assert f"chmod go-w {path}" in str(refused.value) and f"trusted: [{path.parent}]" in str(refused.value)


def test_a_kubeconfig_in_a_trusted_directory_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = written(tmp_path / "shared" / "config", config())
    (tmp_path / "shared" / "config").chmod(0o666)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    own = tmp_path / "own" / "petctl" / "config.yaml"
    own.parent.mkdir(parents=True)
    own.write_text(f"trusted: [{tmp_path / 'shared'}]\n")
    assert find_access(settings).context == "work"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_kubeconfig_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUDO_UID", raising=False)
    settings = written(tmp_path / "config", config())
    os.chown(tmp_path / "config", 54321, -1)
    with pytest.raises(UsageError, match="belongs to the user number 54321, not to root") as refused:
        find_access(settings)
    assert f"chown root {tmp_path / 'config'}" in str(refused.value)
