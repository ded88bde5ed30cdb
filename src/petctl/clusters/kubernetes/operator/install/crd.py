"""The ElasticJob as the API server is told of it: schema, rules and columns. Data only.

Descriptions are what `kubectl explain elasticjob.spec` prints; a rule's message is what somebody reads whose object was
refused, so it says what to do. What can be refused is refused here, at the time of `kubectl apply`; what only the
operator can see, `elasticjob.py` finds.

What a job's record is made of cannot be changed later: its nodes have it already. The sizes that are left out follow
from `replicas`, so that may change only where both are given.
"""

from __future__ import annotations

from typing import Any

from petctl.clusters.kubernetes.elastic_jobs import GROUP, KIND, MOST_NODES, VERSION
from petctl.clusters.kubernetes.operator.install.schema import (
    ANEW,
    FIXED,
    KEPT,
    Schema,
    boolean,
    choice,
    constant,
    integer,
    mapping,
    moment,
    rule,
    same,
    text,
)
from petctl.clusters.kubernetes.operator.install.template import template

PLURAL = "elasticjobs"
NAME = f"{PLURAL}.{GROUP}"
"""Of the definition itself."""


def crd() -> dict[str, Any]:
    """The CustomResourceDefinition."""
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _job()},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [
            _column("Min", "integer", ".spec.minReplicas"),
            _column("Max", "integer", ".spec.maxReplicas"),
            _column("Wanted", "integer", ".status.wanted"),
            _column("Ready", "integer", ".status.readyReplicas"),
            _column("State", "string", ".status.phase"),
            _column("Cause", "string", ".status.cause"),
            _column("Age", "date", ".metadata.creationTimestamp"),
            {**_column("Message", "string", ".status.message"), "priority": 1},
        ],
    }
    names = {
        "kind": KIND,
        "listKind": f"{KIND}List",
        "plural": PLURAL,
        "singular": KIND.lower(),
        "shortNames": ["ej"],
        "categories": ["all"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def _job() -> Schema:
    about = (
        "A training job whose nodes may come and go: any command, run on every node at once, kept training when nodes "
        "are lost, added or taken away."
    )
    # apiVersion, kind and metadata are the server's own
    return mapping(about, {"spec": _spec(), "status": _status()}, ["spec"])


def _spec() -> Schema:
    fields = {
        "replicas": integer(
            "Number of nodes wanted now; kubectl scale changes it, where minReplicas and maxReplicas are given. "
            "Left out: as many as there is room for between them.",
            1,
            MOST_NODES,
        ),
        "minReplicas": integer(
            "Minimum number of nodes; with fewer the job waits. Default: replicas, or else 1. " + FIXED,
            1,
            MOST_NODES,
        ),
        "maxReplicas": integer(
            "Maximum number of nodes. Default: replicas, or else minReplicas. " + FIXED, 1, MOST_NODES
        ),
        "suspend": {
            **boolean("Whether the job is suspended: its pods are deleted; it starts or continues when this is false."),
            "default": False,
        },
        "cleanPodPolicy": choice(
            "Which pods are deleted once the job has ended: All, those that are Running, or None.",
            ["All", "Running", "None"],
            "Running",
        ),
        "ttlSecondsAfterFinished": integer(
            "Seconds after its end until the job and everything created for it are deleted. Left out: never.", 0
        ),
        "activeDeadlineSeconds": integer(
            "Seconds that the job may take; after that it is ended and has failed. Left out: no limit.", 1
        ),
        "backoffLimit": {
            **integer(
                "How many worker failures the job is restarted after; the next one ends it. Lost nodes are "
                "not counted. " + FIXED,
                0,
            ),
            "default": 3,
            **constant("backoffLimit"),
        },
        "restartPolicy": {
            **choice(
                "After which worker failures the job is restarted. OnFailure: any. ExitCode: where the code "
                "means a signal (130, 137, 143) or is 138, the program's own request; every other code ends the "
                "job. Never: none. " + FIXED,
                ["OnFailure", "ExitCode", "Never"],
                "OnFailure",
            ),
            **constant("restartPolicy"),
        },
        "procsPerNode": _processes(),
        "launcher": {
            **choice(
                "What starts the workers: elastic, petctl's own; torchrun or mpi, those of the image; plain. " + FIXED,
                ["elastic", "torchrun", "mpi", "plain"],
                "elastic",
            ),
            **constant("launcher"),
        },
        "python": {
            **text(
                "The interpreter of the image, or of agentImage, that petctl's agent runs under, Python 3.9 or newer. "
                + FIXED
            ),
            "minLength": 1,
            "maxLength": 4096,
            "default": "python3",
            **constant("python"),
        },
        "agentImage": {
            **text(
                "An image with Python 3.9 or newer for petctl's agent, where the job's own has none: its Python is "
                "copied into every pod. The coordinator runs in it. " + FIXED
            ),
            "maxLength": 4096,
            "default": "",
            **constant("agentImage"),
        },
        "warm": {
            **boolean(
                "Whether nodes keep what the job's Python program imports, so that a restart need not import it again. "
                + FIXED
            ),
            "default": True,
            **constant("warm"),
        },
        "template": template(),
        "coordinator": mapping(
            "A piece of a pod template for the coordinator's pod, such as {spec: {nodeSelector: ...}}. It has the "
            "tolerations and the priority class of the nodes without being told.",
            {
                "metadata": {**mapping("Labels and annotations.", {}), **KEPT},
                "spec": {**mapping("As in any pod.", {}), **KEPT},
            },
        ),
    }
    return {**mapping("What the job is.", fields, ["template"]), "x-kubernetes-validations": _sizes()}


def _sizes() -> list[Schema]:
    """The rules between replicas, minReplicas and maxReplicas."""
    both = "(has(self.minReplicas) && has(self.maxReplicas))"
    return [
        rule(
            "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
            "minReplicas is more than maxReplicas: lower one or raise the other",
        ),
        rule(
            "!has(self.replicas) || !has(self.minReplicas) || self.replicas >= self.minReplicas",
            "replicas is less than minReplicas: ask for as many, or for more",
        ),
        rule(
            "!has(self.replicas) || !has(self.maxReplicas) || self.replicas <= self.maxReplicas",
            "replicas is more than maxReplicas: ask for as many, or for fewer",
        ),
        *(rule(same(name), f"{name} {ANEW}") for name in ("minReplicas", "maxReplicas")),
        rule(
            f"{same('replicas')} || {both}",
            "this job has no range to be scaled in: delete it and create it again with minReplicas and maxReplicas",
        ),
    ]


def _processes() -> Schema:
    check = rule(
        "type(self) == int ? int(self) >= 1 : string(self) in ['cpu', 'gpu', 'auto']",
        "procsPerNode is a number, 1 or more, or one of cpu, gpu, auto",
    )
    return {
        "description": "Workers on each node: a number, or cpu (one for each processor), gpu (one for each GPU), auto "
        "(GPUs where there are any, processors otherwise). " + FIXED,
        "x-kubernetes-int-or-string": True,
        "maxLength": 4,
        "default": 1,
        "x-kubernetes-validations": [check, rule("self == oldSelf", f"procsPerNode {ANEW}")],
    }


def _status() -> Schema:
    fields = {
        "phase": text("Pending, Starting, Running, Recovering, Suspended, Succeeded or Failed."),
        "message": text("What the job is doing now, in one sentence."),
        "observedGeneration": integer("The version of the spec that this status is about.", form="int64"),
        "conditions": _conditions(),
        "replicas": integer("Pods of nodes that are not over."),
        "readyReplicas": integer("Pods of nodes that run."),
        "selector": text("Label selector of the nodes' pods; for kubectl scale and autoscalers."),
        "replicaStatuses": mapping(
            "Pods of nodes, counted by how they are.",
            {
                "active": integer("They run."),
                "pending": integer("They do not run yet."),
                "succeeded": integer("They finished successfully."),
                "failed": integer("They have not."),
            },
        ),
        "wanted": integer("The size last sent to the job's coordinator."),
        "told": integer("The number of the coordinator that it was sent to."),
        "absent": {
            "description": "The nodes that it does not wait for, since no machine can take their pods.",
            "type": "array",
            "items": integer("The index of one."),
        },
        "room": mapping(
            "What the cluster has room for, where replicas was left out.",
            {"size": integer("Number of nodes."), "since": moment("Since when that is known.")},
        ),
        "coordinators": integer("Number of coordinator pods created so far."),
        "nodes": integer("Number of node pods created so far."),
        "broken": integer("How many pods in a row ended at their start; the next ones wait longer."),
        "cause": text(
            "Why pods were lost last, or why the job failed, if petctl knows a name for it (docs/diagnosis.md)."
        ),
        "ends": _ends(),
        "kills": integer("How often pods were ended because they used more than allowed; counted like failures."),
        "killedAt": moment("When that was last."),
        "killsFrom": integer("`nodes` at that time: pods from before count again only if they end much later."),
        "startTime": moment("When the operator took the job up."),
        "completionTime": moment("When the job ended."),
        "exitCode": integer("The job's exit code, once it has ended."),
        "outcome": text("How the job ended, as its coordinator reported it (JSON)."),
    }
    return mapping("How the job is. Written by the operator.", fields)


def _ends() -> Schema:
    end = {
        "node": text("Which node it was."),
        "pod": text("Its pod."),
        "uid": text("The pod's uid: another may have its name now."),
        "message": text("What became of it."),
        "cause": text("What petctl calls that."),
        "time": moment("When."),
        "own": boolean("Whether it used more than it may, so that the next one will end like it."),
        "over": boolean("Whether the job was whole again since, so that this is no cause of anything any more."),
    }
    one = mapping("One of them.", end, ["pod", "uid", "message", "time"])
    return {"description": "How the last pods ended that were lost.", "type": "array", "items": one}


def _conditions() -> Schema:
    condition = {
        "type": text("Created, Running, Restarting, Suspended, Succeeded or Failed."),
        "status": {**text("Whether that is so."), "enum": ["True", "False", "Unknown"]},
        "reason": text("Reason, in one word."),
        "message": text("Reason, in a sentence."),
        "lastTransitionTime": moment("Since when."),
        "observedGeneration": integer("The version of the spec that it is about.", form="int64"),
    }
    return {
        "description": "Conditions, for kubectl wait --for=condition=Succeeded.",
        "type": "array",
        "items": mapping("One of them.", condition, ["type", "status"]),
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    }


def _column(name: str, kind: str, path: str) -> dict[str, Any]:
    return {"name": name, "type": kind, "jsonPath": path}
