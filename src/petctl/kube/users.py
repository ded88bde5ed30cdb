"""Who one is, as the user of a kubeconfig says it: tokens, certificates, passwords, programs, and whom to act as.

It reads fields and files; a program is described here and run by `credential_plugin.py` when it is needed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from petctl.errors import UsageError
from petctl.kube.credentials import Credentials, Header, Identity, Nobody, TokenFile
from petctl.kube.kubeconfig_entries import ConfigEntry

_EXTENSION = "client.authentication.k8s.io/exec"  # where a kubeconfig keeps what it has to tell a plugin


def credentials_of(user: ConfigEntry, cluster: ConfigEntry) -> Credentials:
    """What proves to this cluster who this user is."""
    provider = user.section("auth-provider")
    if provider is not None:
        raise UsageError(
            f"{user.place('auth-provider')} ({provider.text('name') or 'without a name'}) is no longer part of "
            "Kubernetes; create the kubeconfig again with the cloud's own tool: it will use `exec`"
        )
    certificate, key = user.content("client-certificate"), user.content("client-key")
    if bool(certificate) != bool(key):
        missing = "client-key" if certificate else "client-certificate"
        raise UsageError(f"{user.place(missing)} (or {missing}-data) is missing; certificate and key come together")
    name, password = user.text("username"), user.text("password")
    return Credentials(
        token=user.text("token"),
        certificate=(certificate, key) if certificate else None,
        basic=(name, password) if name else None,
        identity=_identity(user, cluster),
        others=tuple(_impersonation(user)),
    )


def _identity(user: ConfigEntry, cluster: ConfigEntry) -> Identity:
    path = user.path("tokenFile")
    if path is not None:
        return TokenFile(path, user.place("tokenFile"), otherwise=user.text("token"))
    program = user.section("exec")
    return _plugin(program, cluster) if program is not None else Nobody()


def _plugin(program: ConfigEntry, cluster: ConfigEntry) -> Identity:
    from petctl.kube.credential_plugin import Plugin, Program, check

    command = program.text("command", needed=True)
    if os.sep in command:
        command = str(program.directory / command)
    environment = []
    for item in program.many("env"):
        if not isinstance(item, Mapping) or not isinstance(item.get("name"), str):
            raise UsageError(f"{program.place('env')}: every entry needs a name and a value")
        environment.append((item["name"], str(item.get("value") or "")))
    described = Program(
        origin=f"{program.file}: {program.where}",
        version=program.text("apiVersion", needed=True),
        command=command,
        arguments=tuple(str(word) for word in program.many("args")),
        environment=tuple(environment),
        hint=program.text("installHint"),
        mode=program.text("interactiveMode") or "IfAvailable",
        cluster=_told(cluster) if program.flag("provideClusterInfo") else None,
    )
    return Plugin(check(described))


def _told(cluster: ConfigEntry) -> dict[str, Any]:
    """What a plugin is told about the cluster, in its own field names."""
    authority = cluster.content("certificate-authority")
    told: dict[str, Any] = {
        "server": cluster.text("server"),
        "tls-server-name": cluster.text("tls-server-name"),
        "insecure-skip-tls-verify": cluster.flag("insecure-skip-tls-verify"),
        "proxy-url": cluster.text("proxy-url"),
    }
    if authority:
        import base64

        told["certificate-authority-data"] = base64.b64encode(authority.encode()).decode()
    for item in cluster.many("extensions"):
        if isinstance(item, Mapping) and item.get("name") == _EXTENSION:
            told["config"] = item.get("extension")
    return {name: value for name, value in told.items() if value}


def _impersonation(user: ConfigEntry) -> list[Header]:
    """Whom requests are made as: with it left out, they would be made with more rights than the user meant."""
    found = [("Impersonate-User", user.text("as")), ("Impersonate-Uid", user.text("as-uid"))]
    found += [("Impersonate-Group", str(group)) for group in user.many("as-groups")]
    extra = user.section("as-user-extra")
    if extra is not None:
        from urllib.parse import quote

        found += [
            (f"Impersonate-Extra-{quote(name, safe='')}", str(value))
            for name in extra.values
            for value in extra.many(name)
        ]
    return [(name, value) for name, value in found if value]
