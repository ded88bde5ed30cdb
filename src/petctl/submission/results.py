"""Where a job's results go: from what it asks for and the configuration to plain data in its record, and to grants.

    STORE/JOB/outputs/ID/...      STORE/JOB/logs/...      the job's store (`store` of the job, else of petctl.yaml)
    LOCATION/...                                          an output that has a place of its own

Resolved when the job is submitted, and the same from then on; never a key. Without a store, outputs and logs stay in
the job's directory. Standard library and `petctl.storage.stores`'s light modules only: the supervisor makes grants of
it.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Sequence

from petctl.agent.data.uploader import STORE
from petctl.errors import PetctlError, UsageError
from petctl.job.record import JobRecord, ResultsRecord
from petctl.storage.core.files import direct
from petctl.storage.core.grants import Grant, Grants
from petctl.storage.stores.credentials import Surroundings
from petctl.submission.store_grants import check, grant_of, keys_of, pin

if TYPE_CHECKING:
    from petctl.job.record import Output
    from petctl.job.spec import Job

OUTPUT = "output:"  # what the grant of an output's own place begins with
KEYS_LIVE = 600.0  # seconds after which keys are looked up again
MISSING_LIVE = 30.0  # ... where some could not be found
_FORGOTTEN = "none"  # a store that is not wanted, whatever the configuration says


@dataclass(frozen=True)
class ResultsPlan:
    """What a record keeps. `shown`: where everything will be, for people; `grants`: what nodes may be signed for."""

    shown: ResultsRecord = field(default_factory=ResultsRecord)
    grants: Dict[str, Dict[str, Any]] = field(default_factory=dict)
    routes: Dict[str, str] = field(default_factory=dict)  # output id -> grant; "": everything else, and the logs
    wish: Dict[str, Any] = field(default_factory=dict)  # the job's fields, as another job would ask for the same


def plan_results(job: Job, job_id: str, known: Surroundings) -> ResultsPlan:
    """Where the results of this job will be. Asks no store."""
    wanted = _store(job)
    own = {name: _absolute(place, Path.cwd()) for name, place in job.outputs.items() if place}
    if not wanted and not own:
        return ResultsPlan(wish={"store": _FORGOTTEN} if job.store == _FORGOTTEN else {})
    shown: Dict[str, str] = {}
    logs = ""
    plan = ResultsPlan(wish={"store": wanted or _FORGOTTEN, "outputs": {**job.outputs, **own}})
    if wanted:
        plan.grants[STORE] = {**pin(wanted, known), "below": job_id, "write": True}
        plan.routes[""] = STORE
        below = f"{plan.grants[STORE]['location'].rstrip('/')}/{job_id}"
        logs, shown[""] = f"{below}/logs", f"{below}/outputs"
        shown.update({name: f"{below}/outputs/{name}" for name in job.outputs if name not in own})
    for name, place in own.items():
        try:
            plan.grants[OUTPUT + name] = {**pin(place, known), "below": "", "write": True}
        except PetctlError as error:
            raise UsageError(f"outputs.{name}: {error}") from None
        plan.routes[name] = OUTPUT + name
        shown[name] = plan.grants[OUTPUT + name]["location"]
    return replace(plan, shown=ResultsRecord(logs, shown))


def _store(job: Job) -> str:
    """The job's own wish, else the configuration's."""
    from petctl.config.settings import top_setting

    if job.store:
        return "" if job.store == _FORGOTTEN else _absolute(job.store, Path.cwd())
    found = top_setting("store")
    if found is None:
        return ""
    file, value = found
    if not isinstance(value, str) or not value:
        raise UsageError(f"{file}: store must be a location, such as store: s3://bucket/runs")
    return "" if value == _FORGOTTEN else _absolute(value, file.parent)


def _absolute(text: str, base: Path) -> str:
    if "://" in text or text.startswith("~"):
        return text
    return str(base / text)


def check_results(grants: Mapping[str, Mapping[str, Any]], home: Path) -> None:
    """Finds a missing bucket or a wrong key before the job is in line. Asks the stores; writes nothing."""
    for name, pinned in grants.items():
        if name == STORE or name.startswith(OUTPUT):
            check(pinned, keys_of(home), write=True)


def outputs_of(record: JobRecord) -> List[Output]:
    """Where each output of a job lies; the first, without an id, is everything that has no place of its own."""
    from petctl.job.record import Output

    found = []
    for name in ("", *record.task.outputs):
        location = record.results.outputs.get(name)
        pinned = record.grants.get(OUTPUT + name) or record.grants.get(STORE) or {}
        settings = {key: pinned[key] for key in ("endpoint", "region", "anonymous") if pinned.get(key)}
        if location is None:
            location, settings = f"{record.task.output_dir}/{name}".rstrip("/"), {}
        found.append(Output(name, location, settings))
    return found


class CurrentGrants:
    """A job's grants with the keys of the moment: looked up again when they are old. For several threads."""

    def __init__(
        self,
        places: Mapping[str, Mapping[str, Any]],
        home: Path,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._places, self._home, self._clock = dict(places), home, clock
        self._lock = threading.Lock()
        self._made = Grants({})
        self._until = clock()

    def sign(self, grant: str, requests: Sequence[Mapping[str, Any]]) -> Dict[str, Any]:
        """See Grants."""
        return self.get().sign(grant, requests)

    def page(self, grant: str, after: str) -> Dict[str, Any]:
        """See Grants."""
        return self.get().page(grant, after)

    def ask(self, call: str, arguments: Dict[str, Any]) -> Any:
        """For a Depot in this process."""
        return direct(self.get())(call, arguments)

    def get(self) -> Grants:
        """The grants as they are now."""
        with self._lock:
            if self._clock() >= self._until:
                self._made = make_grants(self._places, keys_of(self._home))
                self._until = self._clock() + (MISSING_LIVE if self._made.missing else KEYS_LIVE)
            return self._made


def make_grants(places: Mapping[str, Mapping[str, Any]], known: Surroundings) -> Grants:
    """Grants for all that can be had now, and for the rest the reason why not."""
    made: Dict[str, Grant] = {}
    missing: Dict[str, str] = {}
    for name, pinned in places.items():
        try:
            made[name] = grant_of(pinned, known, bool(pinned.get("write")), str(pinned.get("below", "")))
            if made[name].kind == "file" and made[name].write:
                Path(made[name].base).mkdir(parents=True, exist_ok=True)
        except PetctlError as error:
            made.pop(name, None)
            missing[name] = str(error)
        except OSError as error:
            missing[name] = f"{pinned['location']}: {error.strerror}"
            made.pop(name, None)
    return Grants(made, missing)
