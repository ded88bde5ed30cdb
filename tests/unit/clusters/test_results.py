"""Where results go: from the job and the configuration to the record, from the record to grants. No store is asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from petctl.clusters.local.build_record import build_record
from petctl.clusters.local.job_directory import JobDirectory
from petctl.controller.journals.records import results_place
from petctl.errors import NoSuchPlace, Refused, UsageError
from petctl.job.spec import Job
from petctl.secret_file import set_secret
from petctl.storage.stores.credentials import Surroundings
from petctl.submission.results import KEYS_LIVE, MISSING_LIVE, CurrentGrants, make_grants, outputs_of, plan_results
from petctl.submission.store_grants import check, pin
from tests.unit.records import job_record

KEYS = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "very-secret", "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
KNOWN = Surroundings(KEYS)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_a_store_holds_everything(here: Path) -> None:
    plan = plan_results(Job(script="a.py", store="s3://b/runs", outputs=["model"]), "j-1", KNOWN)
    assert plan.routes == {"": "store"}
    assert plan.shown.outputs == {"": "s3://b/runs/j-1/outputs", "model": "s3://b/runs/j-1/outputs/model"}
    assert plan.grants["store"]["endpoint"] == "http://127.0.0.1:9" and plan.grants["store"]["below"] == "j-1"
    assert "very-secret" not in json.dumps(plan.grants)
    grant = make_grants(plan.grants, KNOWN)["store"]
    assert (grant.base, grant.prefix, grant.write) == ("http://127.0.0.1:9/b", "runs/j-1/", True)


def test_an_output_with_a_place_of_its_own(here: Path) -> None:
    plan = plan_results(Job(script="a.py", outputs={"model": "s3://b/m", "other": ""}), "j-1", KNOWN)
    assert plan.routes == {"model": "output:model"} and plan.shown.logs == ""
    task = {"output_dir": "/jobs/j-1/outputs", "outputs": ["model", "other"]}
    record = job_record("j-1", task, results=plan.shown, grants=plan.grants)
    everything, model, other = outputs_of(record)
    assert (everything.location, other.location) == ("/jobs/j-1/outputs", "/jobs/j-1/outputs/other")
    assert (model.location, model.settings["endpoint"]) == ("s3://b/m", "http://127.0.0.1:9")
    assert results_place(record) == "s3://b/m"


def test_the_configurations_store_and_how_to_have_none(here: Path) -> None:
    (here / "sub").mkdir()
    (here / "petctl.yaml").write_text("store: results\n")
    assert plan_results(Job(script="a.py"), "j", KNOWN).grants["store"]["location"] == str(here / "results")
    assert plan_results(Job(script="a.py", store="none"), "j", KNOWN).grants == {}
    plan = plan_results(Job(script="a.py", store="mine"), "j", KNOWN)
    assert plan.wish["store"] == str(here / "mine"), "resubmit finds it from anywhere"
    (here / "petctl.yaml").write_text("store: [a]\n")
    with pytest.raises(UsageError, match="store must be a location"):
        plan_results(Job(script="a.py"), "j", KNOWN)


def test_places_that_cannot_be_used(here: Path) -> None:
    with pytest.raises(UsageError, match="a SAS in a job's location"):
        pin("https://acc.blob.core.windows.net/box/x?sig=abc", KNOWN)
    with pytest.raises(UsageError, match="gs://"):
        plan_results(Job(script="a.py", outputs={"m": "gs://b/x"}), "j", KNOWN)
    with pytest.raises(UsageError, match=r"outputs\.m"):
        plan_results(Job(script="a.py", outputs={"m": "ftp://x"}), "j", KNOWN)
    (here / "file").touch()
    with pytest.raises(NoSuchPlace, match="is a file"):
        check(pin(str(here / "file/below"), KNOWN), KNOWN, write=True)
    with pytest.raises(NoSuchPlace, match="does not exist"):
        check(pin(str(here / "nowhere"), KNOWN), KNOWN, write=False)
    check(pin(str(here / "will/be/made"), KNOWN), KNOWN, write=True)
    with pytest.raises(Refused, match="found no key"):
        check({"location": "s3://b/x", "endpoint": "http://127.0.0.1:9"}, Surroundings({}), write=True)


def test_keys_are_looked_up_again(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    places = {"store": {"location": "s3://b/x", "endpoint": "http://127.0.0.1:9", "below": "j", "write": True}}
    grants = CurrentGrants(places, here, clock=lambda: now[0])
    request = [{"method": "GET", "path": "a"}]
    with pytest.raises(Refused, match="found no key"):
        grants.sign("store", request)
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Refused):
        grants.sign("store", request)
    now[0] += MISSING_LIVE
    assert "Credential=id" in grants.sign("store", request)["urls"][0].replace("%2F", "/")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "rotated")
    assert "Credential=id" in grants.sign("store", request)["urls"][0]
    now[0] += KEYS_LIVE
    assert "Credential=rotated" in grants.sign("store", request)["urls"][0]


def test_keys_that_are_kept_as_secrets(here: Path) -> None:
    places = {"store": {"location": "s3://b/x", "endpoint": "http://127.0.0.1:9", "below": "j", "write": True}}
    set_secret(here, "aws-access-key-id", "kept")
    set_secret(here, "aws-secret-access-key", "very-secret")
    urls = CurrentGrants(places, here).sign("store", [{"method": "PUT", "path": "a"}])["urls"]
    assert "Credential=kept" in urls[0] and "very-secret" not in urls[0]


def test_a_store_inside_the_project_is_no_code(here: Path) -> None:
    (here / "store/j-0").mkdir(parents=True)
    (here / "store/j-0/model").write_text("made by an earlier job")
    (here / "a.py").write_text("1")
    (here / "petctl.yaml").write_text("store: store\n")
    record = build_record(Job(script="a.py", code="."), JobDirectory(here / "home/jobs/j-1"), {"slots": 1})
    assert record.results.logs == str(here / "store/j-1/logs")
    assert record.code["files"] == 2 and "store" not in record.code["links"]


def test_nodes_may_read_the_jobs_code_in_its_store_and_nothing_beside_it(here: Path) -> None:
    (here / "a.py").write_text("1")
    (here / "petctl.yaml").write_text("store: s3://b/runs\nstores: {'s3://': {endpoint: 'http://127.0.0.1:9'}}\n")
    record = build_record(Job(script="a.py", code="."), JobDirectory(here / "home/jobs/j-1"), {"slots": 1})
    name, identity = record.task.code.grant, record.code["id"]
    grants = make_grants(record.grants, KNOWN)
    assert (grants[name].base, grants[name].prefix) == ("http://127.0.0.1:9/b", f"runs/code/{identity}/")
    grants.sign(name, [{"method": "GET", "path": "code.tar.gz"}])
    with pytest.raises(Refused, match="read-only"):
        grants.sign(name, [{"method": "PUT", "path": "code.tar.gz"}])
    inside = build_record(Job(script="a.py", code="none"), JobDirectory(here / "home/jobs/j-2"), {"slots": 1})
    assert name not in inside.grants


def test_a_directory_is_made_when_it_is_needed(here: Path) -> None:
    places = {"store": {"location": str(here / "a/b"), "below": "j", "write": True}}
    assert make_grants(places, KNOWN)["store"].kind == "file"
    assert (here / "a/b").is_dir()
    (here / "file").touch()
    places["store"]["location"] = str(here / "file/b")
    assert "store" in make_grants(places, KNOWN).missing
