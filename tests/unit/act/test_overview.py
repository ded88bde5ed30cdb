"""Tables of runs, and what a cluster has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from petctl.clusters.kubernetes.backend import connect
from petctl.compat.act.overview import LONGEST, lines_of
from petctl.kube import objects
from tests.unit.clusters.kubernetes.servers import Handler, serving, url_of


def test_what_is_the_same_in_all_rows_is_told_once() -> None:
    rows: list[dict[str, object]] = [
        {
            "appID": "me_1_aaaaaaaa",
            "status": "Running",
            "cluster": "aml",
            "num_gpu": 8,
            "elapsedTime": 1.5,
            "cmd": "ls",
        },
        {"appID": "me_22_bbbbbbbb", "status": "Queued", "cluster": "aml", "num_gpu": 8, "cmd": "nvidia-smi"},
    ]
    assert lines_of(rows) == [
        "cluster: aml",
        "num_gpu: 8",
        "",
        "appID           status   elapsedTime  cmd",
        "me_1_aaaaaaaa   Running  1.50         ls",
        "me_22_bbbbbbbb  Queued                nvidia-smi",
    ]


def test_one_row_is_a_table_and_none_is_nothing() -> None:
    assert lines_of([]) == []
    assert lines_of([{"appID": "a", "status": "Failed"}]) == ["appID  status", "a      Failed"]


def test_long_commands_are_cut_in_rows_and_whole_where_told_once() -> None:
    rows: list[dict[str, object]] = [{"appID": "a", "cmd": "x" * 200}, {"appID": "b", "cmd": "y\n" * 200}]
    *_, first, second = lines_of(rows)
    assert first == f"a      {'x' * (LONGEST - 3)}..." and len(second) == len(first) and "\n" not in second
    same: list[dict[str, object]] = [{"appID": "a", "cmd": "x" * 200}, {"appID": "b", "cmd": "x" * 200}]
    assert lines_of(same)[0] == f"cmd: {'x' * 200}"
    differing: list[dict[str, object]] = [{"appID": "a", "cmd": "x" * 200}, {"appID": "b", "cmd": "x" * 200 + "y"}]
    assert lines_of(differing)[0].split() == ["appID", "cmd"]  # only what is shown of them is the same


def test_a_value_that_only_some_rows_have_is_not_shared() -> None:
    assert lines_of([{"appID": "a", "result": "nan"}, {"appID": "b"}])[0].split() == ["appID", "result"]


def node(gpus: int, ready: str = "True", **spec: Any) -> dict[str, Any]:
    return {
        "spec": spec,
        "status": {"allocatable": {"nvidia.com/gpu": str(gpus)}, "conditions": [{"type": "Ready", "status": ready}]},
    }


@pytest.mark.parametrize(
    ("found", "ready"),
    [(node(8), True), (node(8, "Unknown"), False), (node(8, unschedulable=True), False)],
)
def test_a_machine_that_takes_no_pods_is_unusable(found: dict[str, Any], ready: bool) -> None:
    assert objects.takes_pods(found) is ready


def test_a_pod_holds_gpus_while_it_is_on_a_machine() -> None:
    spec = {"nodeName": "n1", "containers": [{"resources": {"limits": {"nvidia.com/gpu": "4"}}}, {"name": "side"}]}
    assert objects.gpus_of({"spec": spec, "status": {"phase": "Running"}}) == 4
    assert objects.gpus_of({"spec": spec, "status": {"phase": "Succeeded"}}) == 0
    assert objects.gpus_of({"spec": {**spec, "nodeName": ""}, "status": {"phase": "Pending"}}) == 0


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        ((), {}),
        (("nodes",), {"max_nodes": 2, "unusable_nodes": 1, "total_gpu": 16}),
        (("nodes", "pods"), {"max_nodes": 2, "unusable_nodes": 1, "total_gpu": 16, "free_gpu": 12}),
    ],
)
def test_only_what_a_user_of_kubernetes_may_ask_for_is_told(
    tmp_path: Path, allowed: tuple[str, ...], expected: dict[str, int]
) -> None:
    pod = {"nodeName": "n1", "containers": [{"resources": {"limits": {"nvidia.com/gpu": "4"}}}]}
    objects = {"nodes": [node(8), node(8, "False")], "pods": [{"spec": pod, "status": {"phase": "Running"}}]}

    def answer(request: Handler) -> None:
        kind = request.path.partition("?")[0].removeprefix("/api/v1/")
        if kind in allowed:
            request.reply({"kind": "List", "metadata": {"resourceVersion": "1"}, "items": objects[kind]})
        else:
            request.refuse(403, "Forbidden", f'{kind} is forbidden: User "me" cannot list resource "{kind}"')

    with serving(answer) as server:
        cluster = {"name": "c", "cluster": {"server": url_of(server)}}
        context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
        users = [{"name": "u", "user": {"token": "t"}}]
        kubeconfig = {"clusters": [cluster], "contexts": [context], "users": users, "current-context": "x"}
        (tmp_path / "config").write_text(json.dumps(kubeconfig))
        assert connect(tmp_path, {"name": "k8s", "kubeconfig": str(tmp_path / "config")}).capacity() == expected
