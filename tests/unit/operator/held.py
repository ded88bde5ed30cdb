"""A server in memory, behind the methods of `Api` that the operator writes with: what it holds, and what it was asked.

No watches: whoever wants to see a change looks again.
"""

from __future__ import annotations

import copy
from typing import Any, cast

from petctl.kube.api import Api, Items
from petctl.kube.failures import Conflict, KubernetesError, NoSuchObject, ObjectExists

Object = dict[str, Any]
JOBS = "/apis/petctl.dev/v1/namespaces/team/elasticjobs"
CORE = "/api/v1/namespaces/team"


class Held:
    """Objects by their paths."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.asked: list[str] = []
        self.refusals: dict[str, KubernetesError] = {}  # what a request meets, by its words
        self._version = 0

    @property
    def api(self) -> Api:
        return cast(Api, self)

    def add(self, path: str, thing: Object) -> Object:
        """As if somebody else had made it."""
        self._version += 1
        made = copy.deepcopy(thing)
        about = {"uid": f"uid-{self._version}", "resourceVersion": str(self._version), **made["metadata"]}
        made["metadata"] = {"namespace": "team", "creationTimestamp": "2026-01-02T03:04:05Z", **about}
        self.objects[f"{path}/{about['name']}"] = made
        return copy.deepcopy(made)

    def get(self, path: str, **query: str) -> Object:
        self._ask("GET", path)
        if path not in self.objects:
            raise NoSuchObject(f"{path} not found")
        return copy.deepcopy(self.objects[path])

    def list(self, path: str, selector: str = "") -> Items:
        self._ask("LIST", path)
        found = [thing for place, thing in self.objects.items() if place.rpartition("/")[0] == path]
        wanted = dict(term.split("=") for term in selector.split(",") if term)
        return Items(copy.deepcopy(t) for t in found if wanted.items() <= t["metadata"].get("labels", {}).items())

    def create(self, path: str, body: Object) -> Object:
        name = body["metadata"]["name"]
        self._ask("POST", path if path.endswith("/events") else f"{path}/{name}")
        if f"{path}/{name}" in self.objects:
            raise ObjectExists(f"{name} exists")
        return self.add(path, body)

    def try_out(self, path: str, body: Object) -> None:
        self._ask("TRY", f"{path}/{body['metadata']['name']}")

    def patch(self, path: str, body: Object, kind: str = "merge") -> Object:
        self._ask("PATCH", path)
        found = self.objects[path.removesuffix("/status")]
        if body["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
            raise Conflict("changed meanwhile")
        self._version += 1
        found["metadata"]["resourceVersion"] = str(self._version)
        for part in body.keys() - {"metadata"}:
            merged = {**(found.get(part) or {}), **body[part]}
            found[part] = {name: value for name, value in merged.items() if value is not None}
        return copy.deepcopy(found)

    def delete(self, path: str, uid: str | None = None) -> Object:
        self._ask("DELETE", path)
        if path not in self.objects:
            raise NoSuchObject(f"{path} not found")
        if uid not in (None, self.objects[path]["metadata"]["uid"]):
            raise Conflict("another has its name")
        return self.objects.pop(path)

    def _ask(self, method: str, path: str) -> None:
        words = f"{method} {path}"
        self.asked.append(words)
        if words in self.refusals:
            raise self.refusals[words]


def elastic_job(**spec: Any) -> Object:
    """An ElasticJob, as kubectl makes it."""
    container = {"name": "trains", "image": "python:3.11", "command": ["python3", "train.py"]}
    whole = {"template": {"spec": {"containers": [container]}}, **spec}
    return {
        "apiVersion": "petctl.dev/v1",
        "kind": "ElasticJob",
        "metadata": {"name": "hello", "generation": 1},
        "spec": whole,
    }
