"""What mpirun is told: its hosts, its command line, and the variables that make it ask petctl for its daemons. Pure.

    offer(address, procs, node)      what a node tells the others before a round
    hosts_of(task, place)            all nodes of a round, from what they have offered
    command(...), variables(...)     how the first node starts mpirun

mpirun thinks of the nodes as hosts with names of petctl's own, which nobody has to resolve: its way to another host is
a program in the node's private directory (`mpi_node.py`). So nodes need neither ssh nor names, and any number of them
may be on one machine.

Whatever the user's environment says of Open MPI (OMPI_MCA_..., PRTE_MCA_...) holds.
"""

from __future__ import annotations

import os
import re
import shutil
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence

from petctl.errors import UsageError
from petctl.job.task import Task
from petctl.rendezvous.core.decide import share
from petctl.rendezvous.core.messages import Place

HOSTFILE = "PETCTL_MPI_HOSTFILE"
RANK_SCRIPT = "PETCTL_MPI_RANK"  # what a rank is started with: the node's own file
ENTRY = ["/bin/sh", "-c", f'. "${RANK_SCRIPT}"']  # the same words on every node
_RANKS = re.compile(r"PMIX_(RANK|NAMESPACE|SERVER_)|PMI_|MPI_LOCAL")  # what makes a process a rank
_OPEN_MPI_RANKS = re.compile(r"OMPI_|PRTE_|PMIX_")  # ... where Open MPI did
_HYDRA = re.compile(r"hydra|mpich")
_NAME = re.compile(r"petctl-(\d+)")
_SAID = re.compile(r"(?:\bnode )?\bpetctl-(\d+)\b")


class Host(NamedTuple):
    """One node, as mpirun sees it."""

    name: str
    address: str
    slots: int
    node: str  # petctl's name for it


def offer(address: str, procs: int, node: str) -> str:
    """What a node says of itself before it knows its place."""
    return f"{address} {procs} {node}"


def hosts_of(task: Task, place: Place) -> List[Host]:
    """The nodes of a round in the order of their ranks."""
    hosts: List[Host] = []
    for rank, text in enumerate(place.offers):
        address, procs, node = text.split()
        slots = share([task.processes], rank, place.nodes) if task.processes else int(procs)
        hosts.append(Host(f"petctl-{rank}" if rank else "localhost", address, slots, node))
    return hosts


def rank_of(name: str) -> Optional[int]:
    """The rank of the node that mpirun calls so."""
    match = _NAME.fullmatch(name)
    return int(match.group(1)) if match else None


def with_node_names(text: str, hosts: Sequence[Host]) -> str:
    """What mpirun says of its hosts, as people know them."""

    def known(match: re.Match[str]) -> str:
        rank = int(match.group(1))
        return f"node {hosts[rank].node}" if rank < len(hosts) else match.group()

    return _SAID.sub(known, text)


def hostfile(hosts: Sequence[Host], hydra: bool = False) -> str:
    """The file that mpirun reads."""
    line = "{0.name}:{0.slots}\n" if hydra else "{0.name} slots={0.slots} max-slots={0.slots}\n"
    return "".join(line.format(host) for host in hosts)


def shown_hostfile(hosts: Sequence[Host]) -> str:
    """The file for scripts that want to know the addresses, as Batch AI wrote it."""
    return "".join(f"{host.address} slots={host.slots} max-slots={host.slots}\n" for host in hosts)


def host_variables(hosts: Sequence[Host], shown: str) -> Dict[str, str]:
    """What every rank is told of the nodes."""
    addresses = ",".join(host.address for host in hosts)
    return {
        "PETCTL_HOSTS": addresses,
        "AZ_BATCH_HOST_LIST": addresses,
        "AZ_BATCHAI_JOB_MASTER_NODE_IP": hosts[0].address,
        "MASTER_IP": hosts[0].address,
        HOSTFILE: shown,
        "AZ_BATCHAI_MPI_HOST_FILE": shown,
        "PETCTL_LAUNCHER": "mpi",  # petctl.elastic must not park what mpirun looks after
    }


def outside(inherited: Mapping[str, str]) -> Dict[str, str]:
    """The environment without what a rank of another job has in it: this agent may well descend from one."""
    ranks = _OPEN_MPI_RANKS if "OMPI_COMM_WORLD_RANK" in inherited else _RANKS
    return {name: value for name, value in inherited.items() if not ranks.match(name) and not _RANKS.match(name)}


def find_mpirun(env: Mapping[str, str]) -> str:
    """The mpirun of this node, or a UsageError that says what to install."""
    found = shutil.which("mpirun", path=env.get("PATH", os.defpath))
    if found is None:
        raise UsageError(
            "there is no mpirun on this node's PATH; install Open MPI on every node (on Debian and Ubuntu: "
            "apt install openmpi-bin), or run in an image that has it"
        )
    return found


def is_hydra(mpirun: str) -> bool:
    """Is it that of MPICH or Intel MPI? Told from names: to ask it would delay every start."""
    directory, name = os.path.split(os.path.realpath(mpirun))
    if _HYDRA.search(name):
        return True
    return name == "mpirun" and os.path.exists(os.path.join(directory, "mpiexec.hydra"))  # Intel's is a script


def command(hydra: bool, hosts: Sequence[Host], file: str, program: str, options: List[str]) -> List[str]:
    """The argv of mpirun. The directory is one that every node has; each rank goes to its own from there.

    With a path before its name, mpirun would put its own directory before everything in the PATH of the other nodes.
    """
    mpirun, total = "mpirun", str(sum(host.slots for host in hosts))
    if hydra:
        own = ["-rmk", "user", "-f", file, "-n", total, "-genvnone", "-localhost", hosts[0].address]
        return [mpirun, *own, "-launcher", "ssh", "-launcher-exec", program, "-wdir", "/", *options, *ENTRY]
    own = ["--hostfile", file, "-np", total, "--map-by", "slot", "--bind-to", "none", "-wdir", "/"]
    return [mpirun, *own, *options, *ENTRY]


def variables(hosts: Sequence[Host], program: str) -> Dict[str, str]:
    """What makes mpirun and its daemons come by `program`, stay in the foreground and use the right network."""
    found = {
        "OMPI_MCA_plm": "rsh",
        "OMPI_MCA_plm_rsh_agent": program,
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",  # only the first node has the program
        "OMPI_MCA_orte_leave_session_attached": "1",
        "OMPI_MCA_ras": "^slurm,tm,lsf,gridengine,alps",  # the nodes are those of the job, wherever this one runs
        "OMPI_MCA_if_base_do_not_resolve": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_plm": "ssh",  # Open MPI 5 and newer
        "PRTE_MCA_plm_ssh_agent": program,
        "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
        "PRTE_MCA_prte_leave_session_attached": "1",
        "PRTE_MCA_prte_do_not_resolve": "1",
        "PRTE_ALLOW_RUN_AS_ROOT": "1",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    if len({host.address for host in hosts}) < len(hosts):
        found["OMPI_MCA_coll"] = "^han"  # it tells nodes apart by the name of their machine, and would wait for ever
    if all(host.address.startswith("127.") for host in hosts):  # the daemons of Open MPI 5 never use it by name
        found.update({"OMPI_MCA_oob_tcp_if_include": "lo", "OMPI_MCA_btl_tcp_if_include": "lo"})
    return found
