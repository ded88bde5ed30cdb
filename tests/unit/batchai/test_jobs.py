"""What a name says of the job behind it, at every moment; files, as they are listed and followed."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from petctl.compat.batchai.service.clusters import find_target
from petctl.compat.batchai.service.files import follow, list_files
from petctl.compat.batchai.service.job_state import STATES, _seen, look
from petctl.compat.batchai.service.jobs import SUBMITTING, _own_secrets, create_job, handle_of
from petctl.compat.batchai.service.names import Address, resource_id
from petctl.compat.batchai.service.removal import delete_jobs
from petctl.compat.batchai.service.resource_store import Missing, Trail, Tree
from petctl.compat.batchai.service.resources import create_experiment, create_group, create_workspace, trail_of
from petctl.errors import PetctlError, UsageError
from petctl.files import take_lock
from petctl.job.spec import Job
from petctl.jobs.status import FINAL, ErrorStatus, SizeStatus, Status
from petctl.secret_file import list_secrets, set_secret

JOB = Address("g", "w", "e", "j")


def named(home: Path, **fields: Any) -> Path:
    """A job's name with a record; its directory."""
    create_group(home, "g", "", {})
    create_workspace(home, JOB, "")
    create_experiment(home, JOB)
    tree = Tree(home)
    target = {"id": "petctl://local", "group": None, "workspace": None, "petctl": "local"}
    record = {"created": 1000.0, "cluster": target, "petctl": "", "segment": "s", "properties": {}, "secrets": []}
    with tree.locked():
        tree.make(trail_of("jobs", JOB), {**record, **fields})
    return tree.directory(trail_of("jobs", JOB))


def status(state: str, **fields: Any) -> Status:
    size = SizeStatus(min=1, wanted=1, max=1)
    known = {"id": "j-2345", "name": "j", "cluster": "local", "since": 5.0, "sentence": "words", "submitted": 1.0}
    return Status(state=state, size=size, **{**known, **fields})


def test_a_submission_that_was_cut_off_says_so_and_can_be_deleted(home: Path) -> None:
    named(home)
    _, seen = look(home, JOB)
    assert seen["state"] == "failed"
    assert seen["errors"][0][0] == "NotSubmitted"
    with pytest.raises(UsageError, match="interrupted"):
        handle_of(home, JOB)
    delete_jobs(home, [JOB])
    with pytest.raises(Missing):
        look(home, JOB)


def test_one_that_ends_while_somebody_looks_is_never_taken_for_cut_off(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = named(home)
    held = take_lock(place / SUBMITTING)
    assert held is not None
    read = Tree.read

    def finishes_meanwhile(tree: Tree, trail: Trail) -> dict[str, Any]:
        record = read(tree, trail)
        if trail == trail_of("jobs", JOB) and not record["petctl"]:
            monkeypatch.setattr(Tree, "read", read)
            with tree.locked():
                tree.change(trail, petctl="j-2345")
            os.close(held)
        return record

    monkeypatch.setattr(Tree, "read", finishes_meanwhile)
    assert look(home, JOB)[1]["sentence"] == "it is being submitted"
    assert look(home, JOB)[1]["errors"][0][0] == "JobRemoved"  # petctl has no such job


def test_a_submission_that_fails_takes_its_own_secrets_along_and_no_others(home: Path) -> None:
    create_group(home, "g", "", {})
    create_workspace(home, JOB, "")
    create_experiment(home, JOB)
    set_secret(home, "job-file.T.1", "of the job that is submitted again")
    target = find_target(home, "local", JOB)
    job = Job(shell="true", nodes=90_000, code="none", secrets={"T": "job-file.T.1", "U": "job-file.U.2"})
    with pytest.raises(UsageError, match="90000 nodes"):
        create_job(home, JOB, JOB, target, job, {}, {"job-file.U.2": "new", "azure-real-key": "new"})
    assert list_secrets(home) == ["job-file.T.1"]
    with pytest.raises(Missing):
        look(home, JOB)


def test_the_secrets_of_a_job_are_all_that_it_names() -> None:
    named = {"T": "job-file.T.1", "V": "wandb"}
    job = Job(shell="true", code="none", image="x:1", image_credentials="job-file.registry.2", secrets=named)
    assert _own_secrets(job) == ["job-file.T.1", "job-file.registry.2"]


def test_one_that_is_under_way_is_queued_and_is_let_finish(home: Path) -> None:
    held = take_lock(named(home) / SUBMITTING)
    assert held is not None
    assert look(home, JOB)[1]["state"] == "queued"
    deleted = threading.Event()

    def delete() -> None:
        delete_jobs(home, [JOB])
        deleted.set()

    thread = threading.Thread(target=delete)
    thread.start()
    assert not deleted.wait(0.3)
    os.close(held)
    assert deleted.wait(30)
    thread.join()


def test_a_job_that_petctl_has_no_more_is_told(home: Path) -> None:
    named(home, petctl="j-2345")
    _, seen = look(home, JOB)
    assert seen["errors"][0][0] == "JobRemoved"
    assert look(home, JOB)[1] == seen


def test_states_are_those_of_batch_ai() -> None:
    assert set(STATES.values()) == {"queued", "running", "succeeded", "failed"}
    assert set(STATES) >= FINAL
    running = _seen({}, status("recovering", started=3.0))
    assert (running["state"], running["exit_code"], running["ended"]) == ("running", None, None)
    assert _seen({"terminated": True}, status("running"))["state"] == "terminating"
    assert _seen({"terminated": True}, status("cancelled", finished=9.0, exit_code=130))["state"] == "failed"


def test_a_failure_has_its_reason() -> None:
    error = ErrorStatus(node="1", rank=3, local_rank=0, code=137, signal="SIGKILL", message="last words")
    seen = _seen({}, status("failed", finished=9.0, exit_code=137, error=error))
    ((code, sentence, details),) = seen["errors"]
    assert (code, sentence, seen["exit_code"]) == ("JobFailed", "words", 137)
    assert details == {
        "State": "failed",
        "Node": "1",
        "Rank": "3",
        "ExitCode": "137",
        "Signal": "SIGKILL",
        "Output": "last words",
    }


def test_a_target_is_a_name_an_id_or_one_of_petctls_own(home: Path) -> None:
    assert find_target(home, "local", JOB)["id"] == "petctl://local"
    assert find_target(home, "petctl://local", JOB)["petctl"] == "local"  # as `job show` prints it
    with pytest.raises(Missing, match="there are: local"):
        find_target(home, "nc6", JOB)
    with pytest.raises(Missing, match="no resource group 'g'"):
        find_target(home, resource_id("g", "w", "clusters", "nc6"), JOB)


def test_a_job_on_a_cluster_that_is_not_configured_here_keeps_its_name(home: Path) -> None:
    target = {"id": "petctl://far", "group": None, "workspace": None, "petctl": "far", "here": False}
    named(home, petctl="j-2345", cluster=target)
    _, seen = look(home, JOB)
    assert (seen["state"], seen["ended"]) == ("unknown", None)
    assert "there is no cluster 'far'" in seen["sentence"]
    with pytest.raises(PetctlError, match=r"in the directory whose petctl\.yaml names it"):
        delete_jobs(home, [JOB])
    assert "petctl.yaml" in look(home, JOB)[0]["problem"]


def test_a_job_of_a_deleted_cluster_of_this_machine_is_this_machines(home: Path) -> None:
    target = {"id": "petctl://gone", "group": None, "workspace": None, "petctl": "gone", "here": True}
    named(home, petctl="j-2345", cluster=target)
    assert look(home, JOB)[1]["errors"][0][0] == "JobRemoved"
    delete_jobs(home, [JOB])


def test_a_job_that_cannot_be_ended_keeps_its_name(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named(home, petctl="j-2345")

    def refuse(*_: object, **__: object) -> None:
        raise UsageError("cannot read the kubeconfig")

    monkeypatch.setattr("petctl.compat.batchai.service.removal.handle_of", refuse)
    with pytest.raises(UsageError, match="kubeconfig"):
        delete_jobs(home, [JOB])
    assert look(home, JOB)[0]["problem"] == "cannot read the kubeconfig"


def test_files_are_listed_with_links(tmp_path: Path) -> None:
    root = tmp_path / "outputs"
    assert list_files(root, ".") == []  # not made yet
    (root / "deep dir").mkdir(parents=True)
    (root / "log").write_text("four")
    (root / "gone").symlink_to(tmp_path / "nowhere")
    folder, file = list_files(root, "")
    assert (folder["fileType"], folder["contentLength"], folder["downloadUrl"]) == ("directory", None, None)
    assert (file["fileType"], file["contentLength"], file["name"]) == ("file", 4, "log")
    assert file["downloadUrl"] == f"file://{root}/log"
    with pytest.raises(Missing):
        list_files(root, "nothing")
    with pytest.raises(UsageError, match="'log' is a file"):
        list_files(root, "log")
    with pytest.raises(UsageError, match="is a folder"):
        list(follow(root, lambda: True))


def test_a_file_is_followed_from_before_it_is_there_to_the_end(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "out.txt"
    steps = iter([False, False, False, True])
    found: list[bytes] = []

    def ended() -> bool:
        over = next(steps)
        if found == [] and not path.exists():
            path.parent.mkdir(parents=True)
            path.write_bytes(b"one\n")
        elif not over:
            with path.open("ab") as file:
                file.write(b"two\n")
        return over

    for block in follow(path, ended):
        found.append(block)  # noqa: PERF402  looked at while it grows
    assert b"".join(found) == b"one\ntwo\ntwo\n"
