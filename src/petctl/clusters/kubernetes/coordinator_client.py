"""Asking a job's coordinator, through the API server, whichever pod it is just now."""

from __future__ import annotations

import base64
import json
from typing import Any

from petctl.clusters.kubernetes.names import COORDINATOR, object_name, selector
from petctl.clusters.kubernetes.pods.manifests import PORT
from petctl.controller.job_files import JOIN
from petctl.errors import InternalError, Unreachable
from petctl.kube.api import Api, Items, path, wait_for_change
from petctl.kube.failures import Forbidden, KubernetesError, Unauthorised
from petctl.kube.objects import running
from petctl.rendezvous.net.join_file import JoinFile, decode_join


class CoordinatorClient:
    """The coordinators of one namespace."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api, self._namespace = api, namespace

    def pods(self, job_id: str) -> Items:
        """Those that a job's coordinator has been, as far as they are there."""
        return self._api.list(path("pods", self._namespace), selector(job_id, COORDINATOR))

    def wait_for_pods(self, job_id: str, version: str, timeout: float) -> None:
        """Until anything has changed about them since that version."""
        which = selector(job_id, COORDINATOR)
        wait_for_change(self._api, path("pods", self._namespace), which, version, timeout)

    def ask(self, job_id: str, pods: Items, call: str, patience: float = 30.0, **params: Any) -> Any:
        """The answer of the coordinator that runs now; Unreachable when none can be asked."""
        from petctl.rendezvous.net.client import ControlLink

        alive = running(pods)
        if not alive:
            raise Unreachable(f"the coordinator of {job_id} is not running now; try again")
        newest = alive[-1]["metadata"]["name"]
        try:
            join = self.join_file(job_id, control=True)
            with ControlLink(join, dial=lambda: self._api.dial(self._namespace, newest, PORT)) as link:
                return link.call(call, patience, **params)
        except (Forbidden, Unauthorised):
            raise
        except KubernetesError as error:
            raise Unreachable(f"cannot reach the coordinator of {job_id}: {error}") from None

    def join_file(self, job_id: str, control: bool = False) -> JoinFile:
        """What leads to it, as its nodes have it; `control`: with the right to steer."""
        data = self._api.get(path("secrets", self._namespace, object_name(job_id)))["data"]
        try:
            join = decode_join(json.loads(base64.b64decode(data[JOIN])))
            return join.for_control(base64.b64decode(data["token"]).decode().strip()) if control else join
        except (KeyError, ValueError) as error:
            raise InternalError(f"the Secret of {job_id} is damaged: {error}") from None
