"""A job is accepted once, as its record says, or not at all."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from petctl.clusters.base import AlreadyExists
from petctl.errors import NotFound, UsageError
from petctl.job.record import JobRecord
from petctl.job.spec import Job
from petctl.jobs import JobHandle, get, list_jobs, render
from tests.conformance.backend import OTHER_PROCESSES, Backend

Start = Callable[..., JobHandle]


def test_an_accepted_job_is_known_by_its_id_and_by_a_part_of_it(backend: Backend, live: JobHandle) -> None:
    assert live.id in backend.connect().ids()
    for reference in (live.id, live.id[-4:]):
        assert (get(reference).id, get(reference).cluster) == (live.id, backend.cluster)
    status = live.status()
    assert (status.id, status.name, status.cluster) == (live.id, "case", backend.cluster)
    assert (status.size.min, status.size.wanted, status.size.max) == (1, 2, 3)


def test_an_id_is_given_once(backend: Backend, live: JobHandle) -> None:
    before = live.record()
    with pytest.raises(AlreadyExists, match=live.id):
        backend.start("hello", id=live.id)
    assert live.record() == before
    assert live.status().state == "running"


def test_of_many_who_submit_an_id_at_once_one_is_heard(backend: Backend) -> None:
    cluster = backend.connect()
    records = [cluster.build_record(backend.job("wait", str(number)), "one-0001") for number in range(4)]

    def submitted(record: JobRecord) -> str:
        try:
            backend.connect().submit(record)
        except AlreadyExists:
            return ""
        return record.command

    with ThreadPoolExecutor(len(records)) as pool:
        (heard,) = filter(None, pool.map(submitted, records))
    handle = get("one-0001")
    try:
        assert cluster.ids().count("one-0001") == 1
        assert handle.status().command == heard
        backend.greeted(handle, 1)
    finally:
        backend.end(handle)


def test_a_submitter_that_is_killed_leaves_nothing_or_a_job_that_is_listed(backend: Backend) -> None:
    backend.needs(OTHER_PROCESSES)
    words = ("-m", "tests.conformance.killed_submitter", backend.cluster)
    whole = backend.python(*words, "killed-0000", "0")
    assert whole.returncode == 0, whole.stderr
    parts, fates = 3 if backend.slow else 6, []
    for part in range(1, parts + 1):
        job = f"killed-000{part}"
        cut = backend.python(*words, job, str(max(1, int(whole.stdout) * part // (parts + 1))))
        assert cut.returncode == -9, cut.stderr
        fates.append(job in backend.connect().ids())
        if fates[-1]:
            assert [status.id for status in list_jobs(backend.cluster) if status.id == job] == [job]
            assert get(job).status().state in ("pending", "queued", "starting", "running")
        try:
            backend.start("wait", id=job)
        except AlreadyExists:
            assert fates[-1]
        else:
            assert not fates[-1]
    for job in [f"killed-000{part}" for part in range(parts + 1)]:
        get(job).remove(force=True)
        assert not backend.left(job)


def test_the_record_stays_as_it_was_built_and_is_what_render_shows(backend: Backend, start: Start) -> None:
    cluster = backend.connect()
    cluster.set_secret("kept", "never-to-be-seen")
    job = backend.job("wait", secrets={"TOKEN": "kept"}, labels={"a": "b"}, restarts=1)
    try:
        built = cluster.build_record(job, "planned-0001")
        cluster.submit(built)
        record = get("planned-0001").record()
        assert _plain(record.to_dict()) == _plain(built.to_dict())
        assert record.secrets == {"TOKEN": "kept"} and record.job["labels"] == {"a": "b"}
        shown = render(job, backend.cluster, "json") if cluster.manifests(job, "planned-0002", False) is None else ""
        assert not shown or json.loads(shown)["config"] == _plain(built.to_dict())["config"]
        backend.greeted(get("planned-0001"), 1)
        assert b"never-to-be-seen" not in backend.at_rest("planned-0001") + json.dumps(record.to_dict()).encode()
        assert "never-to-be-seen" not in json.dumps(_plain(list(get("planned-0001").events())))
    finally:
        backend.end(get("planned-0001"))
        cluster.remove_secret("kept")


def _plain(data: Any) -> Any:
    """As JSON, without what is not the job's: where this machine has its code, and objects that the cluster has."""
    plain = json.loads(json.dumps(data))
    if isinstance(plain, dict):
        plain.get("request", {}).pop("objects", None)
    if isinstance(plain, dict) and plain.get("code"):
        plain["code"].pop("archive", None)
    return plain


def test_what_cannot_be_submitted_leaves_nothing(backend: Backend) -> None:
    before = backend.connect().ids()
    with pytest.raises(NotFound, match="not-there"):
        backend.start("hello", secrets={"TOKEN": "not-there"}, id="refused-0001")
    with pytest.raises(UsageError, match="nowhere"):
        backend.connect().build_record(Job(script="nowhere.py"), "refused-0002")
    assert sorted(backend.connect().ids()) == sorted(before)
    assert not backend.left("refused-0001")


OF_NODES: dict[str, dict[str, Any]] = {
    "cpu": {"resources": {"cpu": 2}},
    "memory": {"resources": {"memory": "1GiB"}},
    "gpus": {"resources": {"gpus": 1}},
    "shm": {"resources": {"shm": "64MiB"}},
    "volumes": {"volumes": [{"claim": "data", "path": "/data"}]},
}


@pytest.mark.parametrize("name", OF_NODES)
def test_what_nodes_are_to_have_is_honoured_or_noted_or_refused(backend: Backend, name: str) -> None:
    cluster = backend.connect()
    plain = cluster.build_record(backend.job("hello"), "asking-0001")
    try:
        asking = cluster.build_record(backend.job("hello", **OF_NODES[name]), "asking-0001")
    except UsageError as error:
        assert re.search(rf"cannot give its nodes what the job asks for: {name}", str(error))
    else:
        assert _given(asking) != _given(plain), "it is neither done nor said"


def _given(record: JobRecord) -> tuple[Any, list[str]]:
    """What nodes get, and what the submitter is told."""
    request = json.loads(json.dumps(record.request))
    for made in request.get("objects", ()):
        made["metadata"].pop("annotations", None)  # when it was built
    return request, record.notes


def test_several_jobs_are_listed_together_the_newest_first(backend: Backend, ended: JobHandle, live: JobHandle) -> None:
    listed = {status.id: status for status in list_jobs(backend.cluster)}
    assert {ended.id, live.id} <= set(listed)
    assert (listed[ended.id].state, listed[live.id].state) == ("succeeded", "running")
    times = [status.submitted for status in list_jobs(backend.cluster)]
    assert times == sorted(times, reverse=True)
    assert listed[ended.id] == ended.status()


ASKED: dict[str, Callable[[JobHandle], object]] = {
    "record": lambda job: job.record(),
    "notes": lambda job: job.notes(),
    "status": lambda job: job.status(),
    "watch": lambda job: job.watch(timeout=0.1),
    "events": lambda job: list(job.events()),
    "logs": lambda job: list(job.logs()),
    "outputs": lambda job: job.outputs(),
    "scale": lambda job: job.scale(1),
    "cancel": lambda job: job.cancel(),
    "remove": lambda job: job.remove(),
    "exec": lambda job: job.exec(["true"]),
    "forward": lambda job: job.forward(80).__enter__(),
    "token": lambda job: job.token("join.json"),
}


@pytest.mark.parametrize("verb", ASKED)
def test_a_job_that_does_not_exist_is_not_found(backend: Backend, verb: str) -> None:
    with pytest.raises(NotFound, match=r"no job 'nobody-0000'.*`petctl list") as told:
        ASKED[verb](JobHandle("nobody-0000", backend.connect()))
    assert told.value.code == 2
