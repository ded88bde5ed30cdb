"""A job's status at one moment, from what the coordinator knows and, where there is one, the keeper of its nodes.
Pure: facts in, fields of the status out."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional

from petctl.job.status import NodeStatus, ProgressStatus, RankProgress
from petctl.rendezvous.core.machine import Coordinator
from petctl.rendezvous.core.transitions import GATHERING, RUNNING
from petctl.text import counted


def node_rows(facts: Mapping[str, Any], kept: Mapping[str, Mapping[str, Any]]) -> List[NodeStatus]:
    """One row per node: those that have joined, and those that are only being started."""
    rows = {name: NodeStatus(name, "starting", **own) for name, own in kept.items()}
    for node in facts["nodes"]:
        own = kept.get(node["name"], {"pid": 0, "restarts": 0})  # not ours: it joined with a token
        first = node["first_rank"]
        rows[node["name"]] = NodeStatus(
            node["name"],
            node["state"],
            node["address"],
            node["rank"],
            list(range(first, first + node["procs"])) if first is not None else [],
            own["restarts"],
            own["pid"],
            node["note"],
        )
    return sorted(rows.values(), key=lambda row: (len(row.name), row.name))


def progress_of(facts: Mapping[str, Any]) -> Optional[ProgressStatus]:
    """What the workers have reported in this round; None where they have not."""
    told = facts["progress"]
    return told and ProgressStatus(**{**told, "ranks": [RankProgress(**rank) for rank in told["ranks"]]})


def members_of(machine: Coordinator) -> Dict[str, List[int]]:
    """Who takes part in the running round: node -> first rank, number of ranks."""
    procs = {name: node.report.procs for name, node in machine.nodes.items()}
    return {name: [place.first_rank, place.procs or procs.get(name, 0)] for name, (_, place) in machine.places.items()}


def state_of(phase: str, last: str, ran: bool) -> str:
    """The job's state in the words of its life."""
    if phase == RUNNING:
        return "running"
    if phase == GATHERING:
        return "recovering" if ran else "starting"
    # Neither a new coordinator that finds its feet nor a job that winds down changes what the workers do.
    return last if last in ("starting", "running", "recovering") else "running" if ran else "starting"


def sentence_of(facts: Mapping[str, Any], rows: int, ending: str, granted: int, wanted: int) -> str:
    """Why it is as it is, in one sentence."""
    if ending:
        return f"ending ({ending}): {counted(rows, 'node')} {'is' if rows == 1 else 'are'} stopping"
    if granted < wanted:
        return f"{facts['sentence']}; {granted} of {wanted} nodes have slots"
    return str(facts["sentence"])
