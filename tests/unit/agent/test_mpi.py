"""What mpirun is told: hosts, command line, variables; and what it says when it fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from petctl.agent.launchers import mpi
from petctl.agent.launchers.mpi_round import MpiRound
from petctl.agent.launchers.mpirun_errors import read_words
from petctl.agent.node import runtime_dir
from petctl.agent.workers.environment import RoundContext
from petctl.errors import UsageError
from petctl.job.task import Task
from petctl.rendezvous.core.messages import Place

OFFERS = (mpi.offer("10.0.0.1", 2, "a"), mpi.offer("10.0.0.2", 4, "b"), mpi.offer("10.0.0.2", 1, "c"))
RULE = "-" * 74 + "\n"


def task(**fields: Any) -> Task:
    return Task(**{"job": "j", "kind": "shell", "words": ["true"], "launcher": "mpi", **fields})


def place(rank: int = 0, offers: tuple[str, ...] = OFFERS) -> Place:
    return Place(rank, len(offers), 0, 7, "10.0.0.1", 4711, offers, procs=2)


def context(rank: int = 0, offers: tuple[str, ...] = OFFERS) -> RoundContext:
    return RoundContext("a", "j/a/1", epoch=1, round=3, place=place(rank, offers), spent=0, procs=2)


def test_nodes_become_hosts_that_nobody_has_to_resolve() -> None:
    hosts = mpi.hosts_of(task(), place())
    assert [host.name for host in hosts] == ["localhost", "petctl-1", "petctl-2"]
    assert mpi.hostfile(hosts) == (
        "localhost slots=2 max-slots=2\npetctl-1 slots=4 max-slots=4\npetctl-2 slots=1 max-slots=1\n"
    )
    assert mpi.hostfile(hosts, hydra=True) == "localhost:2\npetctl-1:4\npetctl-2:1\n"
    assert mpi.shown_hostfile(hosts).splitlines()[1] == "10.0.0.2 slots=4 max-slots=4"
    assert [mpi.rank_of(host.name) for host in hosts] == [None, 1, 2]
    assert mpi.rank_of("petctl-1.example") is None


def test_a_number_of_processes_is_spread_as_the_ranks_are() -> None:
    assert [host.slots for host in mpi.hosts_of(task(processes=8), place())] == [3, 3, 2]


def test_people_read_of_nodes_not_of_mpiruns_hosts() -> None:
    hosts = mpi.hosts_of(task(), place())
    assert mpi.with_node_names("lost petctl-2, not node petctl-7.", hosts) == "lost node c, not node petctl-7."
    assert mpi.with_node_names("on node petctl-1.", hosts) == "on node b."


def test_the_users_words_for_mpirun_come_last_before_the_command() -> None:
    argv = mpi.command(False, mpi.hosts_of(task(), place()), "/h", "/p", ["--mca", "btl", "tcp,self"])
    assert argv[:5] == ["mpirun", "--hostfile", "/h", "-np", "7"]
    assert argv[-6:] == ["--mca", "btl", "tcp,self", *mpi.ENTRY]
    assert (argv[argv.index("--bind-to") + 1], argv[argv.index("--map-by") + 1]) == ("none", "slot")


@pytest.mark.parametrize(
    ("real", "hydra"), [("orterun", False), ("prterun", False), ("mpiexec.hydra", True), ("mpirun.mpich", True)]
)
def test_which_mpirun_it_is_is_told_from_its_name(tmp_path: Path, real: str, hydra: bool) -> None:
    (tmp_path / real).touch(0o755)
    (tmp_path / "mpirun").symlink_to(real)
    found = mpi.find_mpirun({"PATH": str(tmp_path)})
    assert mpi.is_hydra(found) == hydra


def test_intels_mpirun_is_a_script_beside_hydra(tmp_path: Path) -> None:
    (tmp_path / "mpirun").touch(0o755)
    assert not mpi.is_hydra(str(tmp_path / "mpirun"))
    (tmp_path / "mpiexec.hydra").touch(0o755)
    assert mpi.is_hydra(str(tmp_path / "mpirun"))


def test_a_node_without_mpirun_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="install Open MPI on every node"):
        mpi.find_mpirun({"PATH": str(tmp_path)})


def test_an_agent_that_descends_from_a_rank_is_none() -> None:
    kept = {"OMPI_MCA_btl": "tcp,self", "PMIX_MCA_gds": "hash", "PATH": "/bin"}
    assert mpi.outside({"PMIX_RANK": "3", "PMI_RANK": "3", **kept}) == kept
    assert mpi.outside({"OMPI_COMM_WORLD_RANK": "3", "PMI_RANK": "3", "OMPI_MCA_ess": "pmi", **kept}) == {
        "PATH": "/bin"
    }


def test_only_nodes_on_one_machine_use_its_loopback() -> None:
    near = place(offers=(mpi.offer("127.0.0.1", 1, "a"), mpi.offer("127.0.0.1", 1, "b")))
    assert mpi.variables(mpi.hosts_of(task(), near), "/p")["OMPI_MCA_btl_tcp_if_include"] == "lo"
    assert "OMPI_MCA_btl_tcp_if_include" not in mpi.variables(mpi.hosts_of(task(), place()), "/p")
    assert mpi.variables(mpi.hosts_of(task(), place()), "/p")["OMPI_MCA_coll"] == "^han"
    assert "OMPI_MCA_coll" not in mpi.variables(mpi.hosts_of(task(), place(offers=OFFERS[:2])), "/p")


@pytest.fixture
def made(tmp_path: Path) -> Iterator[MpiRound]:
    """A round whose files are there."""
    (tmp_path / "mpirun").touch(0o755)
    (tmp_path / "work dir").mkdir()
    env = {"OMPI_MCA_plm_rsh_no_tree_spawn": "0", "OMPI_MCA_osc_sm_backing_directory": "/x"}
    found = MpiRound(
        task(cwd=str(tmp_path / "work dir"), env=env),
        context(),
        {"PATH": str(tmp_path), "TMPDIR": "/users"},
        str(tmp_path / "logs"),
        str(tmp_path),
    )
    found.make_files()
    yield found
    runtime_dir.clear_mpi(str(tmp_path))


def test_a_round_has_its_files_its_ranks_and_mpirun(made: MpiRound, tmp_path: Path) -> None:
    ranks, mpirun = made.ranks(), made.mpirun()
    assert [(launch.rank, launch.local_rank, launch.foreign) for launch in ranks] == [(0, 0, True), (1, 1, True)]
    assert (mpirun.rank, mpirun.launcher, mpirun.err) == (-1, True, f"{tmp_path}/logs/round-0003/launcher.err")
    assert {path.name for path in (tmp_path / "mpi").iterdir()} == {"hosts", "nodes", "launch", "rank", "fifo"}
    assert made.daemon("orted x").argv == ["/bin/sh", "-c", "orted x"]


def test_what_the_user_says_of_open_mpi_holds(made: MpiRound, tmp_path: Path) -> None:
    env = made.mpirun().env
    assert env["OMPI_MCA_plm_rsh_no_tree_spawn"] == "0"
    assert env["TMPDIR"] == str(tmp_path / "mpi")
    assert env["AZ_BATCH_HOST_LIST"] == "10.0.0.1,10.0.0.2,10.0.0.2"
    assert env["AZ_BATCHAI_JOB_MASTER_NODE_IP"] == env["MASTER_IP"] == "10.0.0.1"
    assert "RANK" not in env and "PETCTL_WORKER_KEY" not in env
    script = (tmp_path / "mpi" / "rank").read_text()
    assert "export TMPDIR=/users\n" in script and "OMPI_MCA_osc_sm_backing_directory" not in script


def test_the_rank_after_what_mpi_did_with_it_is_the_one_that_counts(made: MpiRound) -> None:
    launch = made.rank(1, 6)
    assert (launch.rank, launch.local_rank, Path(launch.err).name) == (6, 1, "rank-6.err")
    assert [made.whose(rank) for rank in (0, 1, 2, 5, 6)] == [("a", 0), ("a", 1), ("b", 0), ("b", 3), ("c", 0)]


def test_a_node_without_a_private_directory_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="short path"):
        MpiRound(task(), context(1), {}, str(tmp_path), "")


def test_every_node_needs_an_mpirun(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no mpirun on this node's PATH"):
        MpiRound(task(), context(1), {"PATH": str(tmp_path)}, str(tmp_path), str(tmp_path))


@pytest.mark.parametrize(
    ("text", "code", "wanted"),
    [
        (
            f"{RULE}Primary job  terminated normally, but 1 process returned\na non-zero exit code.\n{RULE}{RULE}mpirun"
            " detected that one or more processes exited with non-zero status, thus causing\nthe job to be terminated."
            f" The first process to do so was:\n\n  Process name: [[3031,1],5]\n  Exit code:    7\n{RULE}",
            7,
            (5, 7, 0, ""),
        ),
        (
            f"{RULE}mpirun noticed that process rank 3 with PID 4711 on node vm exited on signal 9 (Killed).\n{RULE}",
            137,
            (3, 137, 9, ""),
        ),
        (
            f"{RULE}MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD\nwith errorcode 5.\n\nNOTE: invoking"
            f" MPI_ABORT causes Open MPI to kill all MPI processes.\n{RULE}",
            5,
            (2, 5, 0, "it called MPI_Abort"),
        ),
        (
            f"{RULE}There are not enough slots available in the system to satisfy the 6\nslots that were requested by"
            f" the application:\n\n  /bin/sh\n\nEither request fewer procs.\n{RULE}",
            1,
            (
                None,
                1,
                0,
                "There are not enough slots available in the system to satisfy the 6 slots that were requested by the "
                "application:",
            ),
        ),
        (f"{'*' * 58}\n\nmpirun does not support it\n\n{'*' * 58}", 1, (None, 1, 0, "mpirun does not support it")),
        (
            f"{RULE}prterun detected that one or more processes exited with non-zero status,\n\n   Process name:"
            f" [prterun-vm-23644@1,3]\n   Exit code:    7\n{RULE}",
            7,
            (3, 7, 0, ""),
        ),
        ("[mpiexec@vm] no such option\n[mpiexec@vm] bad words\n", 255, (None, 255, 0, "[mpiexec@vm] no such option")),
        ("", 1, (None, 1, 0, "")),
    ],
)
def test_what_mpirun_says(text: str, code: int, wanted: tuple[Any, ...]) -> None:
    found = read_words(text, code)
    assert (found.rank, found.code, found.signal, found.message) == wanted
