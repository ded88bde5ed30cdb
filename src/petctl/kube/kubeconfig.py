"""Which cluster, which namespace, and who one is: as kubectl finds them, in files or in a pod's service account.

    1. `kubeconfig` in the cluster's settings: that file and no other
    2. $KUBECONFIG: a list of files; what the first of them says wins, those that do not exist are passed over
    3. ~/.kube/config
    4. in a pod: its service account

`context` in the settings chooses a context, `namespace` another namespace than the context's. Files that a kubeconfig
names are relative to it. It only reads: nothing is contacted or run here, and no kubeconfig is ever changed. Everything
wrong is told with file, entry and field.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from petctl.errors import UsageError
from petctl.http_proxy import checked, proxy_of
from petctl.kube.credentials import Access, Credentials, TokenFile
from petctl.kube.kubeconfig_entries import ConfigEntry, Merged
from petctl.kube.users import credentials_of

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def find_access(settings: Mapping[str, Any]) -> Access:
    """How to reach the cluster that these settings mean; UsageError says what is missing or wrong, and where."""
    files = _files(settings)
    if not files:
        return _service_account(settings)
    merged = Merged(files)
    context_name = str(settings.get("context") or "") or merged.current
    if not context_name:
        raise UsageError(
            f"{merged.names}: no context is selected; set `context` of this cluster in petctl.yaml, or run "
            f"`kubectl config use-context NAME`{merged.known('contexts')}"
        )
    context = merged.entry("contexts", "context", context_name, context_name, "the one to use")
    name = context.text("cluster", needed=True)
    cluster = merged.entry("clusters", "cluster", name, context_name, context.place("cluster"))
    name = context.text("user")
    user = context._replace(values={})
    if name:
        user = merged.entry("users", "user", name, context_name, context.place("user"))
    server = cluster.text("server", needed=True)
    if not server.startswith(("https://", "http://")):
        raise UsageError(f"{cluster.place('server')} is {server!r}; it must begin with https://")
    credentials = credentials_of(user, cluster)
    if server.startswith("http://"):
        # As kubectl does. What `kubectl proxy` offers on this machine needs none.
        if credentials.any and not _is_here(server):
            raise UsageError(
                f"{cluster.place('server')} is {server!r}: anyone on the network could read the user's token; make it https://"
            )
        credentials = Credentials()
    proxy = cluster.text("proxy-url")
    return Access(
        server=server.rstrip("/"),
        namespace=str(settings.get("namespace") or "") or context.text("namespace") or "default",
        credentials=credentials,
        context=context_name,
        source=merged.names,
        authority=cluster.content("certificate-authority"),
        verify=not cluster.flag("insecure-skip-tls-verify"),
        server_name=cluster.text("tls-server-name"),
        proxy=checked(proxy, cluster.place("proxy-url")) if proxy else proxy_of(server, os.environ),
    )


def _is_here(server: str) -> bool:
    """Whether a server's address leads to this machine itself."""
    from ipaddress import ip_address
    from urllib.parse import urlsplit

    host = urlsplit(server).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:  # another name
        return False


def _files(settings: Mapping[str, Any]) -> list[Path]:
    """The files to read, the strongest first; none: look for a service account."""
    chosen = settings.get("kubeconfig")
    if chosen:
        path = Path(str(chosen)).expanduser()
        if not path.is_file():
            raise UsageError(f"{path} does not exist; `kubeconfig` of this cluster in petctl.yaml names it")
        return [path]
    listed = [Path(name) for name in os.environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    if listed:
        there = [path for path in listed if path.is_file()]
        if not there:
            raise UsageError(
                f"{', '.join(map(str, listed))} does not exist; KUBECONFIG names it: correct or unset that"
            )
        return there
    own = Path.home() / ".kube" / "config"
    return [own] if own.is_file() else []


def _service_account(settings: Mapping[str, Any]) -> Access:
    """Inside a pod: what Kubernetes has put there."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    token = SERVICE_ACCOUNT / "token"
    if not host or not token.is_file():
        raise UsageError(
            f"no kubeconfig found: KUBECONFIG is not set and {Path.home() / '.kube/config'} does "
            "not exist; get a kubeconfig from the cluster's administrator, or set `kubeconfig` of this cluster in "
            "petctl.yaml"
        )
    if settings.get("context"):
        raise UsageError(
            f"there is no context {settings['context']!r}: this pod has a service account, not a kubeconfig"
        )
    entry = ConfigEntry("the service account", "", SERVICE_ACCOUNT, {"certificate-authority": "ca.crt"})
    space = SERVICE_ACCOUNT / "namespace"
    own = space.read_text(encoding="utf-8").strip() if space.is_file() else ""
    return Access(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        namespace=str(settings.get("namespace") or "") or own or "default",
        credentials=Credentials(identity=TokenFile(token, "the service account")),
        source=str(SERVICE_ACCOUNT),
        authority=entry.content("certificate-authority"),
    )
