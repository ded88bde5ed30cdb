"""Which tasks of a plain job a node has, and what each is told of the others."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from petctl.agent.launchers.launchers import why_not_started
from petctl.agent.launchers.plain import PlainTasks
from petctl.agent.launchers.roles import assignments, most_tasks, offer, task_names
from petctl.agent.workers.environment import RoundContext
from petctl.errors import UsageError
from petctl.job.task import Role, Task, decode_task, encode_task
from petctl.rendezvous.core.decide import places_for
from petctl.rendezvous.core.messages import Header, Place, Report

launches = PlainTasks().plan
PS, WORKER = Role("ps", 1, ["--ps"], serves=True), Role("worker", 3)


def task(*words: str, kind: str = "script", roles: list[Role] | None = None, **fields: Any) -> Task:
    more = {"python": "/usr/bin/python3", "launcher": "plain", "min_nodes": 2, "max_nodes": 2, **fields}
    return Task(job="j", kind=kind, words=list(words) or ["train.py"], roles=roles or [], **more)


def rounds(given: Task, nodes: int = 2, procs: int = 1, host: str = "10.0.0.") -> list[RoundContext]:
    """What each node of a round knows, as the coordinator tells it."""
    width = most_tasks(given, procs)
    reports = [
        Report(
            str(k), "i", 1, procs, "", Header(), offer=offer(f"{host}{k}", [7000 + 10 * k + n for n in range(width)])
        )
        for k in range(nodes)
    ]
    places = places_for(reports, 4711, offers=True, tasks=[role.count for role in given.roles])
    return [RoundContext(name, "key", 1, 1, place, 0, procs=place.procs) for name, place in places.items()]


def environments(given: Task, **more: Any) -> list[dict[str, str]]:
    """Of all tasks, by rank."""
    found = [launch for context in rounds(given, **more) for launch in launches(given, context, os.environ, "/logs")]
    assert [launch.rank for launch in found] == list(range(len(found)))
    return [launch.env for launch in found]


def test_each_task_learns_who_it_is_and_where_all_others_listen() -> None:
    found = environments(task(roles=[PS, WORKER]))
    cluster = {"ps": ["10.0.0.0:7000"], "worker": ["10.0.0.0:7001", "10.0.0.1:7010", "10.0.0.0:7002"]}
    told = [json.loads(env["TF_CONFIG"]) for env in found]
    assert [config["cluster"] for config in told] == [cluster] * 4
    assert [(config["task"]["type"], config["task"]["index"]) for config in told] == [
        ("ps", 0),
        ("worker", 0),
        ("worker", 2),
        ("worker", 1),
    ]
    first, last = found[0], found[3]
    assert first["AZ_BATCHAI_PS_HOSTS"] == "10.0.0.0:7000"
    assert first["AZ_BATCHAI_WORKER_HOSTS"] == ",".join(cluster["worker"])
    assert first["PETCTL_HOSTS"] == "10.0.0.0,10.0.0.1"
    names = ("ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE", "AZ_BATCHAI_TASK_INDEX", "RANK", "WORLD_SIZE", "LOCAL_RANK")
    assert [last[name] for name in names] == ["worker", "1", "3", "1", "3", "4", "0"]
    assert first["LOCAL_WORLD_SIZE"] == "3"


def test_launches_carry_their_names_and_whether_they_end() -> None:
    given = task(roles=[PS, WORKER])
    first, _ = rounds(given)
    found = [(one.task, one.serves, one.argv[1:]) for one in launches(given, first, os.environ, "/logs")]
    assert found == [
        ("ps 0", True, ["-u", "train.py", "--ps"]),
        ("worker 0", False, ["-u", "train.py"]),
        ("worker 2", False, ["-u", "train.py"]),
    ]


def test_a_role_may_have_a_command_of_its_own() -> None:
    roles = [Role("ps", 1, ["ps.py", "-v"], "script"), Role("worker", 0, ["a b"])]
    given = task("echo $RANK", kind="shell", roles=roles)
    found = [one.argv[1:] for one in launches(given, rounds(given)[0], os.environ, "/logs")]
    assert found == [["-u", "ps.py", "-v"], ["-c", "echo $RANK 'a b'"]]


def test_a_count_per_node_follows_the_size_of_the_round() -> None:
    roles = [PS, Role("worker")]
    assert task_names(roles, 3) == ["ps 0", "worker 0", "worker 1", "worker 2"]
    given = task(roles=roles, min_nodes=1, max_nodes=3)
    assert most_tasks(given, 1) == 2
    assert json.loads(environments(given, nodes=3)[1]["TF_CONFIG"])["cluster"]["worker"] == [
        "10.0.0.0:7001",
        "10.0.0.1:7010",
        "10.0.0.2:7020",
    ]


def test_a_node_reserves_for_the_smallest_round_that_may_be() -> None:
    assert most_tasks(task(roles=[PS, Role("worker", 4)], min_nodes=2, max_nodes=4), 1) == 3
    assert most_tasks(task(), 5) == 5


def test_without_roles_all_are_workers() -> None:
    found = environments(task(), procs=2)
    assert [env["AZ_BATCHAI_TASK_INDEX"] for env in found] == ["0", "1", "2", "3"]
    assert found[2]["AZ_BATCHAI_WORKER_HOSTS"] == "10.0.0.0:7000,10.0.0.0:7001,10.0.0.1:7010,10.0.0.1:7011"
    assert found[0]["PETCTL_HOSTS"] == "10.0.0.0,10.0.0.1"
    assert "TF_CONFIG" not in found[0] and "AZ_BATCHAI_PS_HOSTS" not in found[0]


def test_addresses_of_the_newer_kind_are_in_brackets() -> None:
    assert environments(task(), host="fd00::")[0]["AZ_BATCHAI_WORKER_HOSTS"] == "[fd00::0]:7000,[fd00::1]:7010"


def test_a_node_without_a_task_is_an_error() -> None:
    place = Place(2, 3, 2, 2, "a", 1, offers=("a 1", "b 1", "c 1"))
    with pytest.raises(UsageError, match="node 3 of 3; ask for fewer"):
        assignments(task(roles=[Role("worker", 2)]), RoundContext("2", "key", 1, 1, place, 0, procs=1))


def test_tasks_survive_the_way_to_the_node() -> None:
    given = task(roles=[PS, WORKER])
    assert decode_task(json.loads(json.dumps(encode_task(given)))) == given
    assert not given.can_be_warm


def test_what_cannot_be_started_is_named_also_if_it_is_not_the_first() -> None:
    given = task("true", kind="program", roles=[PS, Role("worker", 2, ["no-such-program"], "program")])
    planned = launches(given, rounds(given)[0], os.environ, "/logs")
    error = FileNotFoundError(2, "No such file or directory", "no-such-program")
    assert why_not_started(error, planned) == "cannot start no-such-program: No such file or directory"
