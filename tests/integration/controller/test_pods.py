"""Jobs in pods, from start to end: what their coordinator says, records and answers."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from petctl.bundle.snapshot import take
from petctl.errors import PetctlError
from petctl.job.status import JobStatus
from petctl.job.task import Code
from tests.integration.agent.conftest import INTERPRETERS
from tests.integration.controller.conftest import LEAVE_CODE, PodBench
from tests.integration.waiting import DEADLINE, until


@pytest.mark.parametrize("python", [one for one in INTERPRETERS if one.id in ("this", "3.9")])
def test_a_job_says_hello_and_ends(bench: PodBench, python: str) -> None:
    bench.describe("shell", ["echo hello from $RANK of $WORLD_SIZE; echo trouble >&2"])
    container = bench.coordinate(python=python)
    nodes = [bench.node(index, python=python) for index in (0, 1)]
    assert container.wait() == 0
    assert [node.wait() for node in nodes] == [0, 0]
    said = sorted(line for node in nodes for line in bench.lines(node))
    assert said == ["hello from 0 of 2", "hello from 1 of 2", "trouble", "trouble"]
    message = container.message()
    assert message["outcome"] == {"state": "succeeded", "code": 0, "sentence": "all workers finished successfully"}
    assert (message["rounds"], message["spent"], message["size"]) == (1, 0, {"min": 2, "wanted": 2, "max": 2})
    assert message["started"] < message["finished"]
    events = container.events()
    kinds = [event["kind"] for event in events]
    assert kinds[0] == "started" and kinds[-1] == "final" and {"joined", "round", "running", "closing"} < set(kinds)
    assert container.events("running")[0]["members"].keys() == {"0", "1"}
    final = JobStatus.from_dict(events[-1]["status"])
    assert final.final and final.state == "succeeded" and final.exit_code == 0
    assert [node.name for node in final.nodes] == ["0", "1"] and len(final.rounds) == 1
    bench.nothing_left()


def test_the_root_cause_of_a_failure_is_in_the_message(bench: PodBench) -> None:
    script = bench.directory / "train.py"
    fail = "    raise ValueError('no such layer: ' + 'ü' * 9000)\n"
    script.write_text(f"import os, time\nif os.environ['RANK'] == '1':\n{fail}time.sleep(600)\n")
    bench.describe("script", [str(script)])
    container = bench.coordinate()
    nodes = [bench.node(index) for index in (0, 1)]
    assert container.wait() == 0
    assert [node.wait() for node in nodes] == [0, 0]  # they are not needed any more: that is all their code says
    outcome = container.message()["outcome"]
    assert (outcome["state"], outcome["code"]) == ("failed", 1)
    assert outcome["failure"]["rank"] == 1 and outcome["failure"]["message"].startswith("ValueError: no such layer")
    final = JobStatus.from_dict(container.events("final")[0]["status"])
    assert final.state == "failed" and final.error is not None and final.error.rank == 1
    assert len(final.error.traceback) > len(outcome["failure"]["traceback"])  # there is no limit in the log
    bench.nothing_left()


def test_nodes_come_and_go_with_the_wanted_size(bench: PodBench) -> None:
    bench.steps(least=1, most=3)
    container = bench.coordinate()
    nodes = [bench.node(index) for index in (0, 1)]
    for node in nodes:
        bench.up(node, 1, 2)
    with bench.link() as link:
        with pytest.raises(PetctlError, match="1 to 3 nodes, not 4"):
            link.call("scale", wanted=4)
        assert link.call("scale", wanted=3) == "scaling from 2 to 3 nodes"
        nodes.append(bench.node(2))
        for node in nodes:
            bench.up(node, 2, 3)
        assert link.call("status")["size"] == {"min": 1, "wanted": 3, "max": 3}
        assert link.call("scale", wanted=1) == "scaling from 3 to 1 nodes"
        assert [node.wait() for node in nodes[1:]] == [LEAVE_CODE, LEAVE_CODE]
        bench.up(nodes[0], 3, 1)
        # What replaces pods may be quicker than what lowers their number: such a node is only in nobody's way.
        again = bench.node(2)
        until(lambda: len(link.call("status")["nodes"]) == 2, "the node has joined")
        again.terminate()
        assert again.wait() == LEAVE_CODE
        status = JobStatus.from_dict(link.call("status"))
    assert status.round == 3 and status.state == "running" and status.spent == 0
    bench.go.touch()
    assert container.wait() == 0 and nodes[0].wait() == 0
    assert container.message()["size"]["wanted"] == 1
    bench.nothing_left()


def test_whoever_watches_sees_every_change_and_the_end(bench: PodBench) -> None:
    bench.steps()
    container = bench.coordinate()
    seen: list[dict[str, Any]] = []

    def watch() -> None:
        with bench.link() as link:
            version = 0
            while not seen or seen[-1]["finished"] is None:
                answer = link.call("watch", seen=version, within=20.0)
                assert answer["version"] != version
                version = answer["version"]
                seen.append(answer["status"])

    bench.call("status")
    watcher = threading.Thread(target=watch)
    watcher.start()
    nodes = [bench.node(index) for index in (0, 1)]
    for node in nodes:
        bench.up(node, 1, 2)
    with bench.link() as link:
        newest = link.call("watch", seen=0, within=0.0)
        while newest["status"]["state"] != "running" or {node["state"] for node in newest["status"]["nodes"]} != {
            "running"
        }:
            newest = link.call("watch", seen=newest["version"], within=20.0)
        assert link.call("watch", seen=newest["version"], within=0.2) == newest  # nothing happens
    bench.go.touch()
    assert container.wait() == 0
    watcher.join(DEADLINE)
    assert not watcher.is_alive()
    states = [JobStatus.from_dict(status).state for status in seen]
    assert states[0] == "starting" and "running" in states and states[-1] == "succeeded"
    assert all(node.pid == 0 for status in seen for node in JobStatus.from_dict(status).nodes)


def test_who_is_between_two_questions_still_hears_the_end(bench: PodBench) -> None:
    bench.steps()
    container = bench.coordinate()
    nodes = [bench.node(index) for index in (0, 1)]
    for node in nodes:
        bench.up(node, 1, 2)
    with bench.link() as link:
        before = link.call("watch", seen=-1, within=0.0)
        bench.go.touch()
        until(lambda: container.events("final"), "the end is told")
        answer = link.call("watch", seen=before["version"], within=0.0)
        assert answer["status"]["finished"] is not None
    assert container.wait() == 0


def test_cancelling(bench: PodBench) -> None:
    bench.steps()
    container = bench.coordinate()
    nodes = [bench.node(index) for index in (0, 1)]
    for node in nodes:
        bench.up(node, 1, 2)
    assert bench.call("cancel") == "cancelling"
    assert container.wait() == 0
    assert [node.wait() for node in nodes] == [0, 0]
    assert container.message()["outcome"] == {"state": "cancelled", "code": 130, "sentence": "cancelled by the user"}
    bench.nothing_left()


def test_a_job_over_its_time_limit_is_ended(bench: PodBench) -> None:
    bench.steps(nodes=1, max_time=1.0)
    container = bench.coordinate()
    bench.node(0)
    assert container.wait() == 0
    assert container.message()["outcome"]["code"] == 124


def test_secrets_reach_the_workers_and_a_missing_one_ends_the_job(bench: PodBench) -> None:
    bench.describe("shell", ['test "$KEY" = "s3 cret" && echo well'], nodes=1, secrets={"KEY": "api-key"})
    missing = bench.coordinate()
    assert missing.wait() == 0
    assert "there is no secret 'api-key' (for KEY)" in missing.message()["outcome"]["sentence"]
    (bench.material / "secrets").mkdir()
    (bench.material / "secrets" / "api-key").write_text("s3 cret")
    container = bench.coordinate()
    node = bench.node(0)
    assert container.wait() == 0 and node.wait() == 0
    assert bench.lines(node) == ["well"]


def test_code_comes_in_pieces(bench: PodBench, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text("print(open('data.txt').read())\n")
    (project / "data.txt").write_text("from the snapshot")
    (project / "noise.bin").write_bytes(os.urandom(1 << 20))
    snapshot = take(project)
    snapshot.pack(tmp_path / "code.tar.gz")
    pieces = bench.material / "code"
    bench.describe("script", ["train.py"], code=Code(id=snapshot.id, archive="/nowhere/code.tar.gz"))
    pieces.mkdir()
    data = (tmp_path / "code.tar.gz").read_bytes()
    for number, start in enumerate(range(0, len(data), 300_000)):
        (pieces / f"part-{number:05d}").write_bytes(data[start : start + 300_000])
    container = bench.coordinate()
    nodes = [bench.node(index) for index in (0, 1)]
    assert container.wait() == 0
    assert [bench.lines(node) for node in nodes] == [["from the snapshot"], ["from the snapshot"]]


def test_files_that_go_with_their_pods_are_told_where_there_is_no_store(bench: PodBench, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    text = "import os\nopen('model.pt', 'w').write('x')\nopen(os.environ['PETCTL_OUTPUT_DIR'] + '/log.csv', 'w')\n"
    (project / "train.py").write_text(text)
    snapshot = take(project)
    code = Code(id=snapshot.id, archive="/nowhere/code.tar.gz")
    bench.describe("script", ["train.py"], code=code, output_dir="/nowhere/on/this/machine/outputs")
    (bench.material / "code").mkdir()
    snapshot.pack(bench.material / "code" / "part-00000")
    container = bench.coordinate()
    nodes = [bench.node(index) for index in (0, 1)]
    assert container.wait() == 0 and [node.wait() for node in nodes] == [0, 0]
    (event,) = container.events("unsaved")
    lost = "2 files it wrote are lost with its pod: model.pt, log.csv; a store (--store) keeps such files"
    assert event["sentence"] in (f"node 0: {lost}", f"node 1: {lost}")
    assert container.events("final")[-1]["status"]["results"] == event["sentence"]
