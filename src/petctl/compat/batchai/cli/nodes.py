"""and job node: list, and exec: a command where a node's work is done, without ssh."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from petctl.compat.batchai.cli import options
from petctl.compat.batchai.cli.base_command import Exit, IdleOption, Verbs, group, option, say
from petctl.compat.batchai.cli.printing import columns
from petctl.errors import NotFound, UsageError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from petctl.compat.batchai.service.names import Address

    Forward = Callable[[int, int], AbstractContextManager[int]]

exec_options = options.together(
    option("-n, --node-id NODE", "Which node; else the first."),
    option("--exec line LINE", "A shell line to run; else a shell."),
    option("-L forwards PORT:HOST:PORT", "Forward a port meanwhile; several.", multiple=True),
    option("-p, --password TEXT", "Accepted; no login is needed.", cls=IdleOption),
    option("-k, --ssh-private-key FILE", "Accepted; no login is needed.", cls=IdleOption),
)


_ROW = columns("ID nodeId, IP ipAddress, SSH Port port, State petctl.state, Job petctl.job, Reason petctl.reason")


def add_cluster_nodes(cluster: Verbs) -> None:
    """`cluster node list` and `cluster node exec`."""
    node = group("node", "Nodes of a cluster.", cluster, _ROW)

    @options.verb(node, "list -c nc6 -g recipes -w lab -o table")
    def list_(address: Address) -> object:
        """List the nodes with their states; there is no ssh, so no port."""
        from petctl.compat.batchai.service.clusters import cluster_nodes

        return [
            _node(row["name"], "127.0.0.1", state=row["state"], reason=row["reason"] or None, job=row["job"] or None)
            for row in cluster_nodes(options.home(), address)
        ]

    @options.verb(node, "exec -c nc6 -g recipes -w lab --exec 'ls $AZ_BATCHAI_MOUNT_ROOT'")
    @exec_options
    def exec_(address: Address, node_id: str | None, line: str | None, forwards: tuple[str, ...], **_: Any) -> object:
        """Run a command on a node: on this machine, with the cluster's mounts."""
        import subprocess

        from petctl.clusters.port_forward import forwarded
        from petctl.compat.batchai.service.clusters import cluster_nodes, mount_root

        rows = [row["name"] for row in cluster_nodes(options.home(), address)]
        name = _known(node_id, rows, f"cluster {address.name!r}")
        root = str(mount_root(options.home(), address))
        environment = {**os.environ, "AZ_BATCHAI_MOUNT_ROOT": root, "PETCTL_CLUSTER_MOUNTS": root, "PETCTL_NODE": name}

        def forward(there: int, here: int) -> AbstractContextManager[int]:
            import socket

            return forwarded(lambda: socket.create_connection(("127.0.0.1", there), timeout=10), here)

        with _forwarding(forwards, forward, shared=True):
            try:
                code = subprocess.run(_argv(line), env=environment, check=False).returncode
            except OSError as error:
                raise UsageError(f"cannot run {_argv(line)[0]!r}: {error.strerror}") from None
        return Exit(code if code >= 0 else 128 - code)


def add_job_nodes(job: Verbs) -> None:
    """`job node list` and `job node exec`."""
    node = group("node", "Nodes of a job.", job, _ROW)

    @options.verb(node, "list -j mnist -o table")
    def list_(address: Address) -> object:
        """List the nodes that the job has now."""
        from petctl.compat.batchai.service.jobs import handle_of

        rows = handle_of(options.home(), address).status().nodes
        return [_node(row.name, row.address or None, state=row.state, reason=row.sentence or None) for row in rows]

    @options.verb(node, "exec -j mnist --exec nvidia-smi")
    @exec_options
    def exec_(address: Address, node_id: str | None, line: str | None, forwards: tuple[str, ...], **_: Any) -> object:
        """Run a command where a node's workers run, with their environment."""
        from petctl.compat.batchai.service.jobs import handle_of

        handle = handle_of(options.home(), address)
        with _forwarding(forwards, lambda there, here: handle.forward(there, here, node_id)):
            return Exit(handle.exec(_argv(line), node_id))


@contextmanager
def _forwarding(forwards: tuple[str, ...], forward: Forward, shared: bool = False) -> Iterator[None]:
    """Ports that are open meanwhile; on a `shared` machine a port needs no way to itself."""
    with ExitStack() as stack:
        for text in forwards:
            here, there = _ports(text)
            if not (shared and here == there):
                stack.enter_context(forward(there, here))
            say(f"forwarding port {here} here to port {there} of the node")
        yield


def _ports(text: str) -> tuple[int, int]:
    """Of ssh's [bind:]port:host:port."""
    parts = text.split(":")
    try:
        return int(parts[-3]), int(parts[-1])
    except (IndexError, ValueError):
        raise UsageError(f"-L {text!r}: expected PORT:HOST:PORT, such as 8888:localhost:8888") from None


def _node(name: str, address: str | None, **own: Any) -> dict[str, Any]:
    return {"ipAddress": address, "nodeId": name, "petctl": own, "port": None}


def _known(wanted: str | None, names: list[str], whose: str) -> str:
    if not names:
        raise UsageError(f"{whose} has no nodes now; add some: batchai cluster resize -t 1")
    if wanted is not None and wanted not in names:
        raise NotFound(f"{whose} has no node {wanted!r}; its nodes: {', '.join(names)}")
    return wanted or names[0]


def _argv(line: str | None) -> list[str]:
    return ["/bin/sh", "-c", line] if line else [os.environ.get("SHELL") or "/bin/sh"]
