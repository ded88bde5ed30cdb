"""Many runs at a glance, and the cluster they run on: what ACT's `query` without ids, `qf`, `qq`, `qr`, `blame` and
`summary` show.

Rows are the facts of `run_facts.py`; `lines_of` makes text of them. Logs are not looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from petctl.compat.act.run_facts import STATUS, facts_of
from petctl.errors import PetctlError

if TYPE_CHECKING:
    from petctl.clusters.base import Cluster
    from petctl.compat.act.config.config import Config
    from petctl.job.record import JobRecord
    from petctl.jobs import Status

COLUMNS = (
    *("appID", "status", "cluster", "experiment", "num_gpu", "start_time", "elapsedTime"),
    *("step", "speed", "full_expid", "result", "cmd"),
)
LONGEST = 80  # characters of one cell; the whole of it is among a run's facts


def runs(config: Config, states: Collection[str] | None = None, most: int | None = None) -> list[dict[str, object]]:
    """The runs of the configuration's experiment, the newest first; `states`: only those, in ACT's words."""
    found = _rows(config.cluster, states, config.experiment)
    return [row for _, row in zip(range(most), found, strict=False)] if most is not None else list(found)


def blame(config: Config, most: int = 5) -> list[dict[str, object]]:
    """Whose runs have been there for longest on the cluster, in any experiment; a higher `elapsedTime` first."""
    running = list(_rows(config.cluster, ("Running",)))
    return sorted(running, key=lambda row: str(row.get("start_time", "")))[:most]


def summary(config: Config) -> dict[str, object]:
    """What the cluster has, how much of it is free, and how many jobs run and wait, as far as this user may know."""
    from petctl.clusters.base import find_cluster
    from petctl.home import petctl_home
    from petctl.jobs import list_jobs

    home = petctl_home()
    where = find_cluster(config.cluster, home)
    words = [STATUS[status.state] for status in list_jobs(config.cluster)]
    return {
        "cluster": where.name,
        **where.capacity(),
        "running_jobs": words.count("Running") + words.count("Starting"),
        "queued_jobs": words.count("Queued"),
    }


def lines_of(rows: Sequence[Mapping[str, object]]) -> list[str]:
    """A table. What is the same in all rows is told once, above it; what no row knows is left out."""
    cells = [{name: _cell(row.get(name)) for name in COLUMNS} for row in rows]
    known = [name for name in COLUMNS if any(row[name] for row in cells)]
    shared = [name for name in known[1:] if len(rows) > 1 and len({row[name] for row in cells}) == 1]
    shown = [name for name in known if name not in shared]
    table = [shown, *([_cut(row[name]) for name in shown] for row in cells)]
    widths = [max(len(line[k]) for line in table) for k in range(len(shown))]
    above = [f"{name}: {cells[0][name]}" for name in shared]
    aligned = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in table] if rows else []
    return [*above, *([""] if above else []), *aligned]


def _rows(
    cluster: str, states: Collection[str] | None = None, experiment: str | None = None
) -> Iterator[dict[str, object]]:
    """The facts of a cluster's jobs, one by one: whoever wants a few does not ask for all."""
    from petctl.clusters.base import find_cluster
    from petctl.home import petctl_home
    from petctl.jobs import list_jobs

    where = find_cluster(cluster, petctl_home())
    for status in list_jobs(cluster):
        if states is not None and STATUS[status.state] not in states:
            continue
        status, record = _whole(where, status), _record(where, status.id)
        named = str(record.job.get("experiment", "")) if record else ""
        if experiment is None or named == experiment:
            yield {**facts_of(status, record), **({"experiment": named} if named else {})}


def _whole(where: Cluster, status: Status) -> Status:
    """With what only the job itself tells, where a list left that out."""
    from petctl.jobs import JobHandle

    if status.summary and not status.final:
        with suppress(PetctlError):  # it has gone meanwhile
            return JobHandle(status.id, where).status()
    return status


def _record(where: Cluster, job: str) -> JobRecord | None:
    try:
        return where.record(job)
    except PetctlError:  # damaged, or removed meanwhile: the others must still be listed
        return None


def _cell(value: object) -> str:
    return "" if value is None else f"{value:.2f}" if isinstance(value, float) else " ".join(str(value).split())


def _cut(text: str) -> str:
    return f"{text[: LONGEST - 3]}..." if len(text) > LONGEST else text
