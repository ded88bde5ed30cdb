"""Whether a server is reached through an HTTP proxy, by the usual variables: one rule for clusters, stores and nodes.

    HTTPS_PROXY, HTTP_PROXY     by the URL's scheme, else ALL_PROXY; names in lower case count, too
    NO_PROXY                    *, a host (with all below it: example.org, .example.org, *.example.org), host:port, an
                                address, or a network (10.0.0.0/8), between commas

This machine itself is never asked through one. Only http:// proxies; others are refused in words, never passed over:
what is behind one is not reached without it. Standard library only.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Dict, Mapping
from urllib.parse import unquote, urlsplit

from petctl.errors import UsageError

if TYPE_CHECKING:
    from urllib.request import OpenerDirector, Request


def proxy_of(url: str, environ: Mapping[str, str]) -> str:
    """The URL of the proxy through which this one is reached, or nothing."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    if host == "localhost" or host.endswith(".localhost") or _is_loopback(host):
        return ""
    names = [f"{parts.scheme}_proxy", "all_proxy"]
    variable = next((name for name in names if _said(environ, name)), "")
    if not variable or _is_excepted(host, parts.port or (443 if parts.scheme == "https" else 80), environ):
        return ""
    found = _said(environ, variable)
    return checked(found if "://" in found else f"http://{found}", f"the variable {variable.upper()}")


def checked(proxy: str, place: str) -> str:
    """The proxy, if it is one that petctl can use; `place` says so, for the error."""
    parts = urlsplit(proxy)
    if parts.scheme != "http" or not parts.hostname:
        raise UsageError(
            f"{place}: petctl supports only http:// proxies, not {parts.scheme or 'this'}://; set an HTTP proxy, "
            f"or forward a port by hand"
        )
    return proxy


def proxy_headers(proxy: str) -> Dict[str, str]:
    """What proves to a proxy who one is, where its URL says that."""
    parts = urlsplit(proxy)
    if not parts.username:
        return {}
    import base64

    joined = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
    return {"Proxy-Authorization": f"Basic {base64.b64encode(joined).decode()}"}


def url_opener() -> OpenerDirector:
    """Makes what opens URLs by urllib: each, also one that an answer leads to, through the proxy of this rule."""
    from urllib.request import BaseHandler, ProxyHandler, build_opener

    class ByThisRule(BaseHandler):
        handler_order = 100  # as urllib's own: before the connection is made

        def https_open(self, request: Request) -> None:
            proxy = proxy_of(request.full_url, os.environ)
            if proxy:
                for name, value in proxy_headers(proxy).items():
                    request.add_unredirected_header(name, value)
                parts = urlsplit(proxy)
                host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
                request.set_proxy(f"{host}:{parts.port or 80}", "http")

        http_open = https_open

    # The empty one takes the place of urllib's, which has another rule for NO_PROXY.
    return build_opener(ByThisRule(), ProxyHandler({}))


def _said(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name.upper()) or environ.get(name) or ""


def _is_excepted(host: str, port: int, environ: Mapping[str, str]) -> bool:
    rules = (rule.strip().lower() for rule in _said(environ, "no_proxy").split(","))
    return any(_covers(rule, host, port) for rule in rules if rule)


def _covers(rule: str, host: str, port: int) -> bool:
    if rule == "*":
        return True
    if "/" in rule:
        import ipaddress

        try:
            return ipaddress.ip_address(host) in ipaddress.ip_network(rule, strict=False)
        except ValueError:
            return False
    if rule.count(":") == 1:
        rule, _, said = rule.partition(":")
        if said != str(port):
            return False
    name = rule.strip("[]").lstrip("*").lstrip(".")
    return host == name or host.endswith("." + name)


def _is_loopback(host: str) -> bool:
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
