"""A namespace of a Kubernetes cluster as a `Cluster`, for users who may create Jobs in it and nothing more.

Every job's truth is in its objects (`manifests.py`), so any machine with the same access sees, follows and ends it.
What happens inside a running job is asked of its coordinator, through the API server; once it has ended, its pod's
last words say how.
"""

from __future__ import annotations

import base64
import json
import secrets
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from petctl.clusters.base import AlreadyExists, LogFilter, LogLine, Output
from petctl.clusters.kubernetes import logs, looking
from petctl.clusters.kubernetes import manifests as make
from petctl.clusters.kubernetes.api import Api, path
from petctl.clusters.kubernetes.failures import KubernetesError, NoSuchObject, ObjectExists
from petctl.clusters.kubernetes.kubeconfig import find_access
from petctl.clusters.kubernetes.names import COORDINATOR, EVERY_JOB, ID, MANAGED, NODE, object_name, selector
from petctl.errors import InternalError, NotFound, Unreachable, UsageError
from petctl.rendezvous.decide import natural
from petctl.rendezvous.joinfile import JoinFile, decode_join, write_join_file
from petctl.spec import Job

if TYPE_CHECKING:
    from petctl.rendezvous.client import ControlLink

WATCH = 20.0  # seconds that one question may stay open
AS_A_WORKER = """
import json, os, pathlib, sys
wish = json.loads(sys.argv[1])
for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
    try:
        found = path.read_bytes()
    except OSError:
        continue
    if b"\\0PETCTL_WORKER_KEY=" in found:
        os.environ.update(line.split("=", 1) for line in os.fsdecode(found).split("\\0") if "=" in line)
        break
os.environ.update(wish["env"])
try:
    os.chdir(wish["cwd"] or ".")
    os.execvp(wish["argv"][0], wish["argv"])
except OSError as error:
    sys.exit(f"cannot run {wish['argv'][0]!r} in {os.getcwd()}: {error.strerror}")
"""
CANCELLED = {"outcome": {"state": "cancelled", "code": 130, "sentence": "cancelled by the user before it started"}}


def connect(home: Path, settings: Mapping[str, Any]) -> KubernetesCluster:
    """What `find_cluster` calls."""
    return KubernetesCluster(home, settings)


class KubernetesCluster:
    """The jobs of one namespace."""

    def __init__(self, home: Path, settings: Mapping[str, Any]) -> None:
        self.home, self.settings, self.name = home, settings, str(settings["name"])
        self._versions: dict[str, int] = {}  # job -> of the last status that its coordinator told

    @cached_property
    def _api(self) -> Api:
        return Api(find_access(self.settings))

    @property
    def _namespace(self) -> str:
        return self._api.access.namespace

    # -- submitting ----------------------------------------------------------------------------------------------------

    def plan(self, job: Job, job_id: str, code: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The job's record, with the objects that it consists of."""
        from petctl.clusters.kubernetes.plan import make_plan

        return make_plan(job, job_id, self.home, self._namespace, self.settings, code)

    def submit(self, plan: Mapping[str, Any]) -> None:
        """Makes the owner first, asleep, then all that it owns, then wakes it: cut short, it leaves one that sleeps."""
        coordinator, *others = plan["plan"]["objects"]
        self._check_secrets(plan["plan"]["secrets"].values())
        try:
            owner = self._api.create(path("jobs", self._namespace), coordinator)
        except ObjectExists:
            raise AlreadyExists(f"there is a job {plan['id']} already") from None
        try:
            for manifest in [*self._material(plan), *others]:
                kind = f"{manifest['kind'].lower()}s"
                self._api.create(path(kind, self._namespace), make.owned(manifest, owner))
            self._api.patch(self._job_path(plan["id"], COORDINATOR), {"spec": {"suspend": False}})
        except BaseException:
            self._api.delete(self._job_path(plan["id"], COORDINATOR))
            raise

    def _material(self, plan: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """What pods are given: certificate and token, the agent, the record, the code."""
        from petctl.clusters.archive import build_agent
        from petctl.clusters.certificate import make_certificate

        job_id, namespace = plan["id"], plan["plan"]["namespace"]
        host = make.service_name(job_id, namespace)
        certificate, key, pin = make_certificate([host], [])
        token = secrets.token_hex(32)
        join = {"job": job_id, "token": token, "pin": pin, "locator": {"dns": f"{host}:{make.PORT}"}}
        values = {
            "token": token.encode(),
            "tls.crt": certificate,
            "tls.key": key,
            "join.json": json.dumps(join).encode(),
        }
        yield make.secret(job_id, values)
        agent = build_agent(self.home / "cache" / f"agent-{secrets.token_hex(4)}.pyz")
        try:
            record = {**plan, "plan": {name: value for name, value in plan["plan"].items() if name != "objects"}}
            yield make.config(job_id, agent.read_bytes(), json.dumps(record))
        finally:
            agent.unlink()
        if plan["code"]:
            yield from make.code_pieces(job_id, Path(plan["code"]["archive"]).read_bytes())

    def record(self, job_id: str) -> dict[str, Any]:
        """What was submitted."""
        try:
            found = self._api.get(path("configmaps", self._namespace, object_name(job_id)))
        except NoSuchObject:
            raise NotFound(f"there is no job {job_id!r}; `petctl list -c {self.name}` shows those there are") from None
        record: dict[str, Any] = json.loads(found["data"]["job.json"])
        if record["code"] and not Path(record["code"]["archive"]).exists():
            from petctl.bundle.cabinet import Cabinet

            record["code"]["archive"] = str(Cabinet(self.home / "bundles").path(record["code"]["id"]))
        return record

    # -- looking -------------------------------------------------------------------------------------------------------

    def ids(self) -> list[str]:
        """Every job of the namespace."""
        found = self._api.list(path("jobs", self._namespace), EVERY_JOB)
        return [job["metadata"]["annotations"][ID] for job in found if not job["metadata"].get("deletionTimestamp")]

    def status(self, job_id: str) -> dict[str, Any]:
        """From the coordinator while it lives, else from what is left of it."""
        coordinator, pods = self._seen(job_id)
        message = looking.ended(coordinator, pods)
        if message is not None:
            return looking.final_status(self.record(job_id), message)
        try:
            with self._link(job_id, pods) as link:
                answer = link.call("watch", seen=-1, within=0.0)
        except (Unreachable, KubernetesError):
            return looking.waiting_status(self.record(job_id), coordinator, pods)
        return self._told(job_id, answer)

    def watch(self, job_id: str, seen: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """A status that differs from `seen`, or the newest one after `timeout`."""
        deadline = time.monotonic() + timeout
        while True:
            _, pods = self._seen(job_id)
            left = deadline - time.monotonic()
            status = self.status(job_id)
            if status != seen or left <= 0:
                return status
            try:
                with self._link(job_id, pods) as link:
                    within = min(left, WATCH)
                    answer = link.call("watch", within + 10.0, seen=self._versions.get(job_id, -1), within=within)
                    status = self._told(job_id, answer)
            except (Unreachable, KubernetesError):
                self._wait_for_pods(job_id, min(left, WATCH))
            if status != seen and status["finished"] is None:
                return status

    def _told(self, job_id: str, answer: Mapping[str, Any]) -> dict[str, Any]:
        self._versions[job_id] = int(answer["version"])
        status: dict[str, Any] = answer["status"]
        if status["finished"] is not None:  # its nodes are still going: the end is when its pod has ended
            status = {**status, "finished": None, "state": "running", "exit_code": None, "error": None}
        return status

    def _wait_for_pods(self, job_id: str, timeout: float) -> None:
        """Until anything changes about the job's pods."""
        pods = self._api.list(path("pods", self._namespace), selector(job_id))
        for kind, _ in self._api.watch(path("pods", self._namespace), selector(job_id), pods.version, timeout):
            if kind != "BOOKMARK":
                return

    def events(self, job_id: str, follow: bool) -> Iterator[dict[str, Any]]:
        """What the coordinator's pods have printed."""
        return logs.event_lines(self._printed(job_id, COORDINATOR, follow))

    def logs(self, job_id: str, wanted: LogFilter, follow: bool) -> Iterator[LogLine]:
        """What the nodes' pods have printed, as far as it is the workers'."""
        return logs.worker_lines(self._printed(job_id, NODE, follow), wanted)

    def _printed(self, job_id: str, role: str, follow: bool) -> Iterator[tuple[str, bytes]]:
        which = selector(job_id, role)
        if not follow:
            return logs.lines_so_far(self._api, self._namespace, which)
        return logs.lines_as_they_come(self._api, self._namespace, which, lambda: self._over(job_id))

    def _over(self, job_id: str) -> bool:
        return looking.ended(*self._seen(job_id)) is not None

    def outputs(self, job_id: str) -> list[Output]:
        """Nowhere: without a store they go with their pods."""
        self._seen(job_id)
        raise UsageError(f"the outputs of {job_id} were in its pods; only a store keeps them")

    # -- wishes --------------------------------------------------------------------------------------------------------

    def scale(self, job_id: str, wanted: int) -> str:
        """Tells the coordinator first: it knows the bounds, and lets the highest nodes go; then there are more or fewer
        pods."""
        coordinator, pods = self._seen(job_id)
        if looking.ended(coordinator, pods) is not None:
            raise UsageError(f"{job_id} has ended and cannot be scaled")
        with self._link(job_id, pods) as link:
            sentence = str(link.call("scale", wanted=wanted))
        self._api.patch(self._job_path(job_id, NODE), {"spec": {"parallelism": wanted, "completions": wanted}})
        return sentence

    def cancel(self, job_id: str, kill: bool) -> str:
        """Asks the coordinator; a job that has none yet is put to sleep for ever."""
        coordinator, pods = self._seen(job_id)
        if looking.ended(coordinator, pods) is not None:
            return "has ended already"
        try:
            with self._link(job_id, pods) as link:
                return str(link.call("cancel", kill=kill))
        except (Unreachable, KubernetesError):
            if any(pod.get("status", {}).get("phase") == "Running" for pod in pods):
                raise
        message = json.dumps({**CANCELLED, "finished": time.time()})
        asleep = {"spec": {"suspend": True}}
        self._api.patch(self._job_path(job_id, NODE), asleep)
        annotated = {"metadata": {"annotations": {looking.OUTCOME: message}}, **asleep}
        self._api.patch(self._job_path(job_id, COORDINATOR), annotated)
        return "cancelled before it started"

    def remove(self, job_id: str) -> None:
        """Deletes the owner; all the rest goes with it."""
        if looking.ended(*self._seen(job_id)) is None:
            raise UsageError(f"{job_id} has not ended; cancel it first: petctl cancel {job_id}")
        self._api.delete(self._job_path(job_id, COORDINATOR))

    def execute(self, job_id: str, argv: list[str], node: str | None) -> int:
        """Runs a command in a node's pod, with the environment of a worker that runs there."""
        pod = self._pod_of(job_id, node)
        task = self.record(job_id)["plan"]["task"]
        cwd = make.code_directory(task["code"]) if task["code"]["id"] else task["cwd"]
        python = pod["spec"]["containers"][0]["command"][0]
        own = {**task["env"], "PETCTL_JOB_ID": job_id, "PETCTL_NODE": logs.node_of(pod)}
        words = [python, "-c", AS_A_WORKER, json.dumps({"env": own, "cwd": cwd, "argv": argv})]
        tty = sys.stdin.isatty() and sys.stdout.isatty()
        name = pod["metadata"]["name"]
        return self._api.execute(self._namespace, name, words, "petctl", tty, sys.stdin, sys.stdout, sys.stderr)

    def forward(self, job_id: str, port: int, local_port: int, node: str | None) -> AbstractContextManager[int]:
        """A port here that leads to a node's."""
        from petctl.clusters.proxy import forwarded

        name = self._pod_of(job_id, node)["metadata"]["name"]
        return forwarded(lambda: self._api.dial(self._namespace, name, port), local_port)

    def token(self, job_id: str, path: Path, address: str | None) -> None:
        """The join file that the nodes' pods have; it leads to the coordinator from inside of the cluster."""
        self._seen(job_id)
        join = self._join(job_id)
        if address:
            join = replace(join, locator={"address": address if ":" in address else f"{address}:{make.PORT}"})
        write_join_file(path, join)

    def _pod_of(self, job_id: str, node: str | None) -> dict[str, Any]:
        """A pod that runs: this node's, or the first one."""
        self._seen(job_id)
        pods = {logs.node_of(pod): pod for pod in self._api.list(path("pods", self._namespace), selector(job_id, NODE))}
        running = {name: pod for name, pod in pods.items() if pod["status"].get("phase") == "Running"}
        if node is None and running:
            return running[min(running, key=natural)]
        if node not in running:
            known = ", ".join(sorted(running, key=natural)) or "none"
            which = f"no node {node!r} that runs" if node is not None else "no node that runs"
            raise NotFound(f"{job_id} has {which}; those that run: {known}")
        return running[node]

    # -- secrets -------------------------------------------------------------------------------------------------------

    def set_secret(self, name: str, value: str) -> None:
        """Keeps it in the namespace's own Secret."""
        body = {"stringData": {name: value}}
        try:
            self._api.patch(path("secrets", self._namespace, make.SECRETS), body)
        except NoSuchObject:
            metadata = {"name": make.SECRETS, "labels": dict(MANAGED)}
            new = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, **body}
            self._api.create(path("secrets", self._namespace), new)

    def list_secrets(self) -> list[str]:
        """Names, never values."""
        try:
            return sorted(self._api.get(path("secrets", self._namespace, make.SECRETS)).get("data") or {})
        except NoSuchObject:
            return []

    def remove_secret(self, name: str) -> None:
        """Forgets it."""
        self._check_secrets([name])
        self._api.patch(path("secrets", self._namespace, make.SECRETS), {"data": {name: None}})

    def _check_secrets(self, names: Any) -> None:
        wanted = set(names)
        missing = sorted(wanted - set(self.list_secrets())) if wanted else []
        if missing:
            raise NotFound(
                f"there is no secret {missing[0]!r} in {self.name}; keep it with: petctl secret set -c {self.name} "
                f"{missing[0]}"
            )

    # -- inside --------------------------------------------------------------------------------------------------------

    def _job_path(self, job_id: str, role: str) -> str:
        return path("jobs", self._namespace, f"{object_name(job_id)}-{role}")

    def _seen(self, job_id: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The job's owner, and the coordinator's pods."""
        try:
            coordinator = self._api.get(self._job_path(job_id, COORDINATOR))
        except NoSuchObject:
            raise NotFound(f"there is no job {job_id!r}; `petctl list -c {self.name}` shows those there are") from None
        return coordinator, self._api.list(path("pods", self._namespace), selector(job_id, COORDINATOR))

    def _link(self, job_id: str, pods: list[dict[str, Any]]) -> ControlLink:
        """A connection to the coordinator that runs now."""
        from petctl.rendezvous.client import ControlLink

        alive = [pod for pod in pods if pod["status"].get("phase") == "Running"]
        alive = [pod for pod in alive if not pod["metadata"].get("deletionTimestamp")] or alive
        if not alive:
            raise Unreachable(f"the coordinator of {job_id} does not run now; try again")
        newest = max(alive, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))["metadata"]["name"]
        return ControlLink(self._join(job_id), dial=lambda: self._api.dial(self._namespace, newest, make.PORT))

    def _join(self, job_id: str) -> JoinFile:
        data = self._api.get(path("secrets", self._namespace, object_name(job_id)))["data"]
        try:
            return decode_join(json.loads(base64.b64decode(data["join.json"])))
        except (KeyError, ValueError) as error:
            raise InternalError(f"the Secret of {job_id} is damaged: {error}") from None
