"""The union of variables, and who wins where two say something."""

from __future__ import annotations

from typing import Any

from petctl.agent.workers.environment import RoundContext, node_environment, worker_environment
from petctl.job.task import Layout, Task
from petctl.rendezvous.core.messages import Place

PLACE = Place(rank=1, nodes=3, first_rank=2, world_size=6, master_addr="10.0.0.1", master_port=4711)


def task(**fields: Any) -> Task:
    return Task(job="mnist-3f9k", kind="script", words=["train.py"], min_nodes=1, max_nodes=4, **fields)


def context(**fields: Any) -> RoundContext:
    values: dict[str, Any] = {"procs": 2, **fields}
    return RoundContext("n1", "mnist-3f9k/n1/ab12", epoch=5, round=7, place=PLACE, spent=1, **values)


def test_every_variable_that_a_script_may_expect() -> None:
    env = worker_environment({}, task(output_dir="/o", checkpoint_dir="/c"), context(), 1, "/logs/e.json")
    assert env == {
        "RANK": "3",
        "LOCAL_RANK": "1",
        "GROUP_RANK": "1",
        "ROLE_RANK": "3",
        "ROLE_NAME": "default",
        "ROLE_WORLD_SIZE": "6",
        "WORLD_SIZE": "6",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_WORLD_SIZE": "3",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "4711",
        "TORCHELASTIC_RESTART_COUNT": "1",
        "TORCHELASTIC_MAX_RESTARTS": "3",
        "TORCHELASTIC_RUN_ID": "mnist-3f9k",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCHELASTIC_ERROR_FILE": "/logs/e.json",
        "NUM_NODES": "3",
        "SIZE": "3",
        "MIN_SIZE": "1",
        "MAX_SIZE": "4",
        "RDZV_ENDPOINT": "10.0.0.1:4711",
        "JOB_ID": "mnist-3f9k",
        "OMP_NUM_THREADS": "1",
        "NCCL_ASYNC_ERROR_HANDLING": "1",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "PETCTL_JOB_ID": "mnist-3f9k",
        "PETCTL_ROUND": "7",
        "PETCTL_EPOCH": "5",
        "PETCTL_HEARTBEAT_LIMIT": "5",
        "PETCTL_NODE": "n1",
        "PETCTL_NODE_KEY": "mnist-3f9k/n1/ab12",
        "PETCTL_WORKER_KEY": "mnist-3f9k/n1/ab12/7/3",
        "PETCTL_OUTPUT_DIR": "/o",
        "PETCTL_CHECKPOINT_DIR": "/c",
    }


def test_the_job_overrides_the_node_and_petctl_overrides_the_job() -> None:
    inherited = {"A": "node", "B": "node", "PATH": "/bin", "RANK": "99"}
    env = worker_environment(inherited, task(env={"B": "job", "WORLD_SIZE": "1"}, secrets={"C": "s"}), context(), 0, "")
    assert (env["A"], env["B"], env["C"], env["PATH"]) == ("node", "job", "s", "/bin")
    assert (env["RANK"], env["WORLD_SIZE"]) == ("2", "6")
    assert inherited["RANK"] == "99"


def test_thread_count_is_the_users_business_when_he_said_so_or_there_is_one_process() -> None:
    assert "OMP_NUM_THREADS" not in worker_environment({}, task(), context(procs=1), 0, "")
    assert worker_environment({"OMP_NUM_THREADS": "8"}, task(), context(), 0, "")["OMP_NUM_THREADS"] == "8"
    assert worker_environment({}, task(env={"OMP_NUM_THREADS": "4"}), context(), 0, "")["OMP_NUM_THREADS"] == "4"


def test_visible_gpus_only_when_the_node_was_given_some() -> None:
    assert "CUDA_VISIBLE_DEVICES" not in worker_environment({}, task(), context(), 0, "")
    assert worker_environment({}, task(), context(gpus="2,3"), 0, "")["CUDA_VISIBLE_DEVICES"] == "2,3"


def test_an_ipv6_master_is_bracketed_only_in_the_endpoint() -> None:
    place = Place(0, 1, 0, 1, "fe80::1", 4711)
    env = worker_environment({}, task(), RoundContext("n", "k", 1, 1, place, 0, 1), 0, "")
    assert (env["MASTER_ADDR"], env["RDZV_ENDPOINT"]) == ("fe80::1", "[fe80::1]:4711")


def test_marks_of_an_outer_job_are_not_inherited() -> None:
    names = ("PETCTL_STEP", "PETCTL_WORKER_KEY", "PETCTL_AGENT_SOCKET", "PETCTL_LAUNCHER")
    env = node_environment({**dict.fromkeys(names, "outer"), "PETCTL_NODE_KEY": "outer"}, task(), "n1", "inner")
    assert not any(name in env for name in names) and env["PETCTL_NODE_KEY"] == "inner"


def test_a_worker_finds_its_agent_and_petctl_after_what_the_user_put_on_the_path() -> None:
    here = context(socket="/tmp/p/agent.sock", library="/tmp/p/library")
    assert worker_environment({}, task(), here, 0, "")["PETCTL_AGENT_SOCKET"] == "/tmp/p/agent.sock"
    assert worker_environment({}, task(), here, 0, "")["PYTHONPATH"] == "/tmp/p/library"
    assert worker_environment({"PYTHONPATH": ""}, task(), here, 0, "")["PYTHONPATH"] == "/tmp/p/library"
    env = worker_environment({"PYTHONPATH": "/a"}, task(env={"PYTHONPATH": "/b:/c"}), here, 0, "")
    assert env["PYTHONPATH"] == "/b:/c:/tmp/p/library"


def test_a_batch_ai_job_has_its_own_names_for_its_round() -> None:
    layout = Layout("batchai", said={"backend": "gloo"})
    env = worker_environment({}, task(layout=layout), context(), 1, "/logs/e.json")
    assert (env["AZ_BATCHAI_TASK_INDEX"], env["AZ_BATCHAI_JOB_MASTER_NODE_IP"]) == ("3", "10.0.0.1")
    assert env["MASTER_IP"] == "10.0.0.1"
    assert env["AZ_BATCHAI_PYTORCH_INIT_METHOD"] == "tcp://10.0.0.1:4711"
    assert env["AZ_BATCHAI_PYTORCH_BACKEND"] == "gloo"
    assert env["PETCTL_PYTHON"] == "python3"
    mpi = worker_environment(
        {}, task(layout=Layout("batchai", said={"backend": ""}), launcher="mpi", python="/p"), context(), 0, ""
    )
    assert "AZ_BATCHAI_TASK_INDEX" not in mpi, "mpirun numbers its ranks itself"
    assert "AZ_BATCHAI_PYTORCH_BACKEND" not in mpi
    assert mpi["PETCTL_PYTHON"] == "/p"
