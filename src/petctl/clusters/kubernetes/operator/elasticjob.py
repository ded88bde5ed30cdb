"""One ElasticJob, read: sizes and policies with their defaults, and the pod template as a piece for the nodes' own.

The schema (`crd.py`) has refused what is malformed; what it cannot express is a UsageError from here. It changes
nothing and asks nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from petctl.clusters.kubernetes.elastic_jobs import MOST_NODES, RETRYABLE, bounds, id_of
from petctl.clusters.kubernetes.names import CONTAINER, JOB, MANAGED, ROLE
from petctl.errors import UsageError

Object = dict[str, Any]

DEFAULT_GRACE = 30.0
AGENT_GRACE = 10.0  # of a pod's grace: what the agent needs after its workers' own
_OURS = (JOB, ROLE, *MANAGED)


class ElasticJob(NamedTuple):
    """What somebody wants of one job."""

    object: Object
    namespace: str
    name: str
    uid: str
    id: str  # as petctl shows it
    least: int
    most: int
    replicas: int | None  # None: as many as there is room for
    suspended: bool
    spec: Mapping[str, Any]
    status: Mapping[str, Any]

    @property
    def key(self) -> tuple[str, str]:
        """Where it is found."""
        return self.namespace, self.name

    @property
    def going(self) -> bool:
        """Is it being deleted? Then all that it owns goes without anybody's help."""
        return bool(self.object["metadata"].get("deletionTimestamp"))

    @property
    def restarts(self) -> int:
        """How many failures of workers are restarted from."""
        return 0 if self.spec.get("restartPolicy") == "Never" else int(self.spec.get("backoffLimit", 3))

    @property
    def retry_on(self) -> tuple[tuple[int, int], ...]:
        """Ranges of exit codes to restart from; none: all."""
        return RETRYABLE if self.spec.get("restartPolicy") == "ExitCode" else ()

    @property
    def grace(self) -> float:
        """Seconds that workers have to stop."""
        asked = self.spec["template"].get("spec", {}).get("terminationGracePeriodSeconds")
        return DEFAULT_GRACE if asked is None else max(1.0, float(asked) - AGENT_GRACE)

    @property
    def container(self) -> Mapping[str, Any]:
        """The one that runs the job."""
        containers = self.spec["template"].get("spec", {}).get("containers") or [{}]
        return dict(containers[0])

    @property
    def command(self) -> list[str]:
        """What every worker runs."""
        words = [*(self.container.get("command") or []), *(self.container.get("args") or [])]
        if not self.container.get("command"):
            raise UsageError(
                "spec.template.spec.containers[0] has no command; name the program, since the image's own "
                "ENTRYPOINT cannot be read from here"
            )
        return [str(word) for word in words]

    def check_size(self) -> None:
        """Refuses what the schema refuses, for a cluster that has an older one."""
        largest = max(self.most, self.least, self.replicas or 0)
        if largest > MOST_NODES:
            raise UsageError(f"at most {MOST_NODES} nodes are possible, not {largest}")

    def patch(self) -> Object:
        """The template as a piece of the nodes' pod template: its first container becomes the agent's."""
        template = self.spec["template"]
        spec = dict(template.get("spec") or {})
        if spec.pop("restartPolicy", "Never") != "Never":
            raise UsageError("spec.template.spec.restartPolicy is the operator's own: a pod that ends is replaced")
        own = {key: value for key, value in self.container.items() if key not in ("command", "args")}
        spec["containers"] = [{**own, "name": CONTAINER}, *(spec.get("containers") or [])[1:]]
        metadata = dict(template.get("metadata") or {})
        metadata = {key: dict(metadata[key]) for key in ("labels", "annotations") if metadata.get(key)}
        for label in _OURS:
            metadata.get("labels", {}).pop(label, None)
        return {"metadata": metadata, "spec": spec}


def read_job(found: Object) -> ElasticJob:
    """What the object says, defaults filled in."""
    about, spec = found["metadata"], found.get("spec") or {}
    replicas = spec.get("replicas")
    least, most = bounds(found)
    return ElasticJob(
        object=found,
        namespace=about["namespace"],
        name=about["name"],
        uid=about["uid"],
        id=id_of(found),
        least=least,
        most=most,
        replicas=None if replicas is None else int(replicas),
        suspended=bool(spec.get("suspend")),
        spec={"template": {}, **spec},
        status=found.get("status") or {},
    )
