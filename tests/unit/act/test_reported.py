"""A run's facts, in ACT's words."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from petctl.compat.act.run_facts import STATUS, facts_of
from petctl.job.file.write import job_to_dict
from petctl.job.record import JobRecord
from petctl.job.spec import Job
from petctl.jobs.status import FINAL, ErrorStatus, ProgressStatus, SizeStatus, Status
from tests.unit.records import job_record

STARTED = 1563257650.688519  # 2019-07-16T06:14:10Z


def status(state: str, **more: Any) -> Status:
    known: dict[str, Any] = {
        "id": "jianfw_1563257309_60ce2fc7",
        "name": "jianfw",
        "cluster": "local",
        "state": state,
        "since": 0.0,
        "sentence": f"it is {state}",
        "size": SizeStatus(min=2, wanted=2, max=2),
        "submitted": 1563257309.0,
    }
    return Status(**{**known, **more})


def record(*argv: str, **more: Any) -> JobRecord:
    labels = {"act": "aml", "act-gpus": "8"}
    return job_record(job=job_to_dict(Job(program=argv, nodes=2, resources={"gpus": 4}, labels=labels, **more)))


def test_the_documents_own_example() -> None:
    seen = status("cancelled", started=STARTED, finished=STARTED + 15.27 * 3600)
    facts = facts_of(seen, record("python", "src/qd/pipeline.py", "-bp", "x"), now=STARTED + 16.0 * 3600)
    assert facts == {
        "appID": "jianfw_1563257309_60ce2fc7",
        "appID-s": "e2fc7",
        "cluster": "aml",
        "cmd": "python src/qd/pipeline.py -bp x",
        "elapsedTime": 15.27,
        "elapsedFinished": 0.73,
        "end_time": "2019-07-16T21:30:22.688519Z",
        "num_gpu": 8,
        "start_time": "2019-07-16T06:14:10.688519Z",
        "status": "Canceled",
    }


def test_every_state_has_a_word() -> None:
    assert set(STATUS) >= FINAL
    assert set(STATUS.values()) == {"Running", "Queued", "Starting", "Failed", "Completed", "Canceled"}


@pytest.mark.parametrize("state", ["pending", "queued", "starting"])
def test_what_waits_has_not_begun(state: str) -> None:
    facts = facts_of(status(state, started=STARTED), record("ls"))
    assert {"start_time", "elapsedTime", "end_time", "ssh"}.isdisjoint(facts)
    assert facts["sentence"] == f"it is {state}"


def test_what_runs() -> None:
    progress = ProgressStatus(step=120, steps_per_second=8.333, metrics={"loss": 0.31})
    seen = status("recovering", started=STARTED, progress=progress)
    facts = facts_of(seen, record("nvidia-smi", image="me/setup:1"), now=STARTED + 90 * 60)
    assert (facts["status"], facts["elapsedTime"], facts["cmd"]) == ("Running", 1.5, "nvidia-smi")
    assert (facts["step"], facts["speed"], facts["metrics"]) == (120, 8.33, {"loss": 0.31})
    assert facts["ssh"] == "act ssh jianfw_1563257309_60ce2fc7"
    assert facts["docker_image"] == "me/setup:1"
    # A coordinator that came in place of another does not know when that one began.
    assert facts_of(status("running"), record("ls"))["start_time"] == "2019-07-16T06:08:29.000000Z"


def test_why_it_failed() -> None:
    error = ErrorStatus(node="0", rank=0, local_rank=0, code=1, cause="gpu-out-of-memory")
    facts = facts_of(status("failed", error=error, started=STARTED, finished=STARTED), record("ls"))
    assert (facts["sentence"], facts["result"]) == ("it is failed", "gpu-out-of-memory")
    again = facts_of(status("running", last_failure=error, started=STARTED), record("ls"))
    assert again["result"] == "gpu-out-of-memory"
    assert "result" not in facts_of(status("succeeded", last_failure=error), record("ls"))
    assert facts_of(status("lost"), None)["status"] == "Failed"


PARAMETERS = b"type: train\nparam: {data: coco, net: R50, expid: M_BS16, base_lr: 0.02}\n"


def test_parameters_in_base64_are_read() -> None:
    words = ("python", "pipeline.py", "-bp", base64.b64encode(PARAMETERS).decode())
    facts = facts_of(status("running"), record(*words))
    assert facts["cmd_param"] == {
        "type": "train",
        "param": {"data": "coco", "net": "R50", "expid": "M_BS16", "base_lr": 0.02},
    }
    assert [facts[name] for name in ("data", "net", "expid", "full_expid")] == [
        "coco",
        "R50",
        "M_BS16",
        "coco_R50_M_BS16",
    ]
    assert facts["cmd"] == " ".join(words)


@pytest.mark.parametrize(
    "words",
    [
        ("python", "x.py"),
        ("python", "x.py", "-bp"),
        ("python", "x.py", "-bp", "no base64!"),
        ("python", "x.py", "-bp", base64.b64encode(b"\xff\xfe").decode()),
        ("python", "x.py", "-bp", base64.b64encode(b"[1, 2").decode()),
        ("python", "x.py", "-bp", "größe"),
        ("python", "x.py", "-bp", base64.b64encode(b"day: 2020-99-99").decode()),
        ("python", "x.py", "-bp", base64.b64encode(b"[" * 5000).decode()),
        ("python", "x.py", "-bp", base64.b64encode(b"!!python/object/apply:os.system ['true']").decode()),
    ],
)
def test_anything_else_behind_bp_is_left_alone(words: tuple[str, ...]) -> None:
    facts = facts_of(status("running"), record(*words))
    assert {"cmd_param", "data", "full_expid"}.isdisjoint(facts)


def test_the_command_can_be_typed_again() -> None:
    facts = facts_of(status("running"), record("python", "train.py", "--note", "two words"))
    assert facts["cmd"] == "python train.py --note 'two words'"


def test_a_job_that_act_did_not_submit() -> None:
    plain = job_record(job=job_to_dict(Job(script="train.py", nodes=2, resources={"gpus": 4})))
    facts = facts_of(status("running", command="python train.py"), plain)
    assert (facts["cluster"], facts["num_gpu"], facts["cmd"]) == ("local", 8, "python train.py")
    bare = facts_of(status("lost", command="python train.py"), None)
    assert (bare["appID"], "num_gpu" in bare) == ("jianfw_1563257309_60ce2fc7", False)


def test_where_its_data_and_logs_are(tmp_path: Path) -> None:
    names = ["70_driver_log_rank_0.txt", "70_driver_log_rank_0.err.txt", "70_driver_log_rank_1.txt"]
    paths = [tmp_path / "azureml-logs" / name for name in names]
    paths[0].parent.mkdir()
    for path in paths:
        path.touch()
    said = replace(record("ls"), folders=[{"name": "data", "location": "az://acc/box/path", "mode": "ro"}])
    facts = facts_of(status("running"), said, paths)
    assert facts["data_store"] == {"data": "az://acc/box/path"}
    assert facts["logFiles"] == [f"azureml-logs/{name}" for name in names]
    assert facts["all_log_path"] == [str(path) for path in paths]
    assert facts["master_log"] == str(paths[0])
    paths[1].write_text("all is said by logging\n")
    assert facts_of(status("running"), said, paths)["master_log"] == str(paths[1])
