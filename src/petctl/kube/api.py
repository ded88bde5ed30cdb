"""The API of one cluster, in the few calls that petctl makes: objects, watches, logs, commands and ports in pods.

Objects are plain mappings, as the server tells them; paths are the API's own (`path` makes the usual ones). Every
refusal is an error of `failures.py`. Any number of threads may use one `Api`. How requests are made, and made again, is
`requests.py`. ssl and http are imported when the first request is made.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from petctl.kube import failures
from petctl.kube.credentials import Access
from petctl.kube.requests import Begun, Object, Requests

if TYPE_CHECKING:
    from petctl.kube.dial import Dialled

PAGE = 500  # objects in one answer
_ATTEMPTS = 5
_CORE = ("pods", "services", "secrets", "configmaps", "persistentvolumeclaims", "events", "nodes", "namespaces")
_RIGHTS = ("roles", "rolebindings", "clusterroles", "clusterrolebindings")
_GROUPS = {
    **dict.fromkeys((*_CORE, "serviceaccounts"), "api/v1"),
    **dict.fromkeys(_RIGHTS, "apis/rbac.authorization.k8s.io/v1"),
    "jobs": "apis/batch/v1",
    "elasticjobs": "apis/petctl.dev/v1",
    "poddisruptionbudgets": "apis/policy/v1",
    "leases": "apis/coordination.k8s.io/v1",
    "deployments": "apis/apps/v1",
    "customresourcedefinitions": "apis/apiextensions.k8s.io/v1",
}
_OF_NO_NAMESPACE = ("nodes", "namespaces", "clusterroles", "clusterrolebindings", "customresourcedefinitions")
_PATCHES = {"merge": "application/merge-patch+json", "strategic": "application/strategic-merge-patch+json"}


class Items(list[Object]):
    """All objects of a list, and the version from which a watch goes on."""

    version = ""


class Descriptor(Protocol):
    """Whatever has a file descriptor."""

    def fileno(self) -> int:
        """Its number."""


def path(kind: str, namespace: str = "", name: str = "") -> str:
    """The API's path of an object, or of all of a kind; without a namespace: in all of them."""
    if kind not in _GROUPS:
        raise ValueError(f"no path is known for {kind}")
    words = [_GROUPS[kind]]
    if namespace and kind not in _OF_NO_NAMESPACE:
        words += ["namespaces", quote(namespace, safe="")]
    return "/" + "/".join([*words, kind, *([quote(name, safe="")] if name else [])])


class Api:
    """Calls to one cluster. `asked`: for whoever counts them, see `Requests`."""

    def __init__(self, access: Access, asked: Callable[[str], None] | None = None) -> None:
        self.access = access
        self._requests = Requests(access, asked)

    def __enter__(self) -> Api:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes idle connections; those that still carry something end by themselves."""
        self._requests.close()

    def get(self, path: str, **query: str) -> Object:
        """One object."""
        return self._requests.answer("GET", path, query)

    def list(self, path: str, selector: str = "", fields: str = "") -> Items:
        """All objects there, however many pages it takes; `version` is where a watch goes on."""
        query = {"limit": str(PAGE), **({"labelSelector": selector} if selector else {})}
        query |= {"fieldSelector": fields} if fields else {}
        items, going_on, attempts = Items(), "", 0
        while True:
            try:
                answer = self._requests.answer("GET", path, {**query, **({"continue": going_on} if going_on else {})})
            except failures.Gone:
                attempts += 1
                if not going_on or attempts > 3:
                    raise
                items, going_on = Items(), ""  # reading took so long that the rest is forgotten: from the beginning
                continue
            items.extend(answer.get("items") or [])
            about = answer.get("metadata") or {}
            items.version, going_on = str(about.get("resourceVersion") or ""), str(about.get("continue") or "")
            if not going_on:
                return items

    def create(self, path: str, body: Mapping[str, Any]) -> Object:
        """A new object, as the server completed it; ObjectExists where there is one of that name."""
        return self._requests.answer("POST", path, {}, body)

    def try_out(self, path: str, body: Mapping[str, Any]) -> None:
        """Has the server say what it thinks of a new object, without making it: Invalid also for unknown fields."""
        self._requests.answer("POST", path, {"dryRun": "All", "fieldValidation": "Strict"}, body)

    def patch(self, path: str, body: Any, kind: str = "merge") -> Object:
        """The object with these changes."""
        return self._requests.answer("PATCH", path, {}, body, _PATCHES[kind])

    def apply(self, path: str, body: Mapping[str, Any], manager: str = "petctl") -> Object:
        """Has the object say this, whether it is there or not; what others have put into it beside that stays."""
        query = {"fieldManager": manager, "force": "true"}
        return self._requests.answer("PATCH", path, query, body, "application/apply-patch+yaml")

    def delete(
        self, path: str, propagation: str = "Background", grace: int | None = None, uid: str | None = None
    ) -> Object:
        """Has it removed, with what it owns (`Foreground`: that first; `Orphan`: without it).

        `uid`: only if it is that one; Conflict where another has taken its name.
        """
        options: Object = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        return self._requests.answer("DELETE", path, {}, options)

    def watch(
        self, path: str, selector: str = "", version: str = "", timeout: float = 300.0, begun: Begun | None = None
    ) -> Iterator[tuple[str, Object]]:
        """What changes after `version`: ADDED, MODIFIED, DELETED, and BOOKMARK, which only tells a newer version.

        Ends after `timeout`, or earlier when the server wants it; go on from the last object's version. Gone: that
        version is too old; list anew. `begun`: called when the server has accepted it, with what cuts it.
        """
        query = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(max(1, math.ceil(timeout)))}
        query |= {"labelSelector": selector} if selector else {}
        query |= {"resourceVersion": version} if version else {}
        rest = b""
        for chunk in self._requests.stream(path, query, "a watch", time.monotonic() + timeout, begun=begun):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in filter(None, lines):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise failures.from_status(event["object"], self.access.where)
                yield event["type"], event["object"]

    def log(
        self,
        namespace: str,
        pod: str,
        container: str = "",
        follow: bool = False,
        tail: int | None = None,
        since_time: str | None = None,
        timestamps: bool = False,
    ) -> Iterator[bytes]:
        """What a container printed, in pieces as they come; with `follow` until it ends. `timestamps`: in each line.

        NotStarted: ask later. Of a pod that has no node yet, the server gives an empty log instead.
        """
        query = {"container": container} if container else {}
        query |= {"follow": "true"} if follow else {}
        query |= {"tailLines": str(tail)} if tail is not None else {}
        query |= {"sinceTime": since_time} if since_time else {}
        query |= {"timestamps": "true"} if timestamps else {}
        yield from self._requests.stream(
            f"{path('pods', namespace, pod)}/log", query, f"the log of {pod}", patient=follow
        )

    def execute(
        self,
        namespace: str,
        pod: str,
        argv: Sequence[str],
        container: str = "",
        tty: bool = False,
        stdin: int | Descriptor | None = None,
        stdout: int | Descriptor | None = None,
        stderr: int | Descriptor | None = None,
    ) -> int:
        """Runs a command in a container with these descriptors; its exit code. With `tty` there is no own stderr.

        What it prints where no descriptor is given is dropped.
        """
        from petctl.kube import execute

        wanted = {"stdin": stdin is not None, "stdout": True, "stderr": not tty}  # servers refuse to run without any
        query = [("command", word) for word in argv] + [(name, "true") for name, wish in wanted.items() if wish]
        query += [("tty", "true")] if tty else []
        query += [("container", container)] if container else []
        link = self._requests.websocket(f"{path('pods', namespace, pod)}/exec", query, execute.PROTOCOLS)
        return execute.converse(link, tty, *(_number(stream) for stream in (stdin, stdout, stderr)))

    def dial(self, namespace: str, pod: str, port: int) -> Dialled:
        """A socket that leads to a port of a pod. Nobody listens there: it ends at once, and `failure` says so."""
        from petctl.kube import dial

        query = [("ports", str(port))]
        link = self._requests.websocket(f"{path('pods', namespace, pod)}/portforward", query, dial.PROTOCOLS)
        return dial.carried(link, f"port {port} of pod {pod}")


def wait_for_change(api: Api, path: str, selector: str, version: str, timeout: float) -> None:
    """Until anything there has changed after that version; more may have changed than the server remembers."""
    with suppress(failures.Gone):
        for kind, _ in api.watch(path, selector, version, timeout):
            if kind != "BOOKMARK":
                return


def share(api: Api, kinds: str, manifest: Mapping[str, Any]) -> Object:
    """Makes an object that several own, or adds this one's owners to those of the one that has its name: it goes with
    the last of them. If the server collects it meanwhile, it is made again."""
    references = {"ownerReferences": manifest["metadata"]["ownerReferences"]}
    for _ in range(_ATTEMPTS):
        with suppress(failures.ObjectExists):
            return api.create(kinds, manifest)
        with suppress(failures.NoSuchObject):
            return api.patch(f"{kinds}/{manifest['metadata']['name']}", {"metadata": references}, "strategic")
    name = f"the {manifest['kind']} {manifest['metadata']['name']}"
    raise failures.Conflict(f"{name} is created and deleted repeatedly; try again")


def _number(stream: int | Descriptor | None) -> int | None:
    return stream if stream is None or isinstance(stream, int) else stream.fileno()
