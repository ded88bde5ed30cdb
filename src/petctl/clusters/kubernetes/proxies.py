"""Whether the API server is reached through an HTTP proxy: the kubeconfig's `proxy-url`, else the usual variables.

Only http:// proxies, which are asked to CONNECT. Others are refused in words, never passed over: a cluster that is
behind one is not reached without it. Pure but for the environment.
"""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from petctl.errors import UsageError


def proxy_for(server: str, chosen: str, place: str) -> str:
    """The proxy's URL, or empty. `chosen` is what the kubeconfig says, at `place`."""
    if chosen:
        return _checked(chosen, place)
    parts = urlsplit(server)
    host = parts.hostname or ""
    if host == "localhost" or host.startswith("127.") or host == "::1":
        return ""
    name = "HTTPS_PROXY" if parts.scheme == "https" else "HTTP_PROXY"
    found = os.environ.get(name) or os.environ.get(name.lower()) or ""
    excepted = os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or ""
    if not found or any(_covers(rule.strip(), host) for rule in excepted.split(",") if rule.strip()):
        return ""
    return _checked(found if "://" in found else f"http://{found}", f"the variable {name}")


def _checked(url: str, place: str) -> str:
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise UsageError(
            f"{place}: petctl reaches a cluster through http:// proxies only, not through {parts.scheme or 'this'}://; "
            "name an HTTP proxy, or forward a port by hand"
        )
    return url


def _covers(rule: str, host: str) -> bool:
    """Whether an entry of NO_PROXY means this host."""
    if rule == "*":
        return True
    if "/" in rule:
        import ipaddress

        try:
            return ipaddress.ip_address(host) in ipaddress.ip_network(rule, strict=False)
        except ValueError:
            return False
    name = rule.rpartition(":")[0] if rule.count(":") == 1 else rule
    name = name.lstrip("*").lower()
    return host == name.lstrip(".") or host.endswith("." + name.lstrip("."))
