"""What an operator says of its own rights."""

from __future__ import annotations

import threading
from typing import Any, cast

from petctl.clusters.kubernetes.operator.install.objects import rules_for_jobs
from petctl.clusters.kubernetes.operator.runtime.rights import _NEEDED, REVIEWS, missing_rights, watch_rights
from petctl.kube.api import Api
from petctl.kube.failures import ServerUnreachable


class Server:
    """One that allows all but `denied`, as long as it can be reached."""

    def __init__(self, *denied: str) -> None:
        self.denied, self.away = set(denied), False

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert path == REVIEWS
        if self.away:
            raise ServerUnreachable("away")
        asked = body["spec"]["resourceAttributes"]
        assert asked["namespace"] == "team"
        return {"status": {"allowed": asked["resource"] not in self.denied}}


def test_rights_that_were_taken_away_are_named() -> None:
    assert list(missing_rights(cast(Api, Server()), "team")) == []
    pods = ["create pods", "delete pods", "create pods/portforward"]
    assert list(missing_rights(cast(Api, Server("pods")), "team")) == pods
    for kind in ("services", "poddisruptionbudgets", "secrets", "configmaps"):
        assert list(missing_rights(cast(Api, Server(kind)), "team")) == [f"create {kind}"]
    assert "patch elasticjobs/status" in missing_rights(cast(Api, Server("elasticjobs")), "team")


def test_every_kind_of_object_is_asked_about_and_nothing_that_is_not_granted() -> None:
    granted = {
        (verb, group, resource)
        for rule in rules_for_jobs(True)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    asked = {(verb, group, f"{kind}/{part}" if part else kind) for verb, group, kind, part in _NEEDED}
    assert asked <= granted
    # Without events a job runs unannounced; finalizers are guarded on some clusters only.
    assert {name for _, _, name in granted - asked} - {name for _, _, name in asked} == {
        "events",
        "elasticjobs/finalizers",
    }


def test_what_was_known_holds_while_the_server_is_away() -> None:
    server = Server("secrets")
    told: list[str] = []

    class Waits(threading.Event):
        """Each wait is the next chapter."""

        def wait(self, timeout: float | None = None) -> bool:
            chapter = len(told)
            server.away = chapter == 1
            if chapter == 2:
                server.denied.clear()
            return chapter == 3

    watch_rights(cast(Api, server), "team", told.append, Waits())
    assert told == ["create secrets", "create secrets", ""]
