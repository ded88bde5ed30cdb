"""petctl cluster: shares of this machine with nodes and a queue of their own, as things that one makes and deletes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from petctl.cli.clusters.cluster_file import description, pairs, read_description, seconds
from petctl.console.commands import Verbs, examples, output_option, print_json

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

LOCAL = "local"
_COUNTS = ("idle", "running", "preparing", "leaving", "unusable")


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of clusters for the shell; silent on any error: the user is typing."""
    from click.shell_completion import CompletionItem

    try:
        from petctl.clusters.provisioner import find_provisioner
        from petctl.home import petctl_home

        known = find_provisioner(ctx.params.get("kind") or LOCAL).names(petctl_home())
        return [CompletionItem(name) for name in known if name.startswith(incomplete)]
    except Exception:
        return []


_KIND = click.option(
    "-k", "--kind", metavar="KIND", default=LOCAL, show_default=True, help="Kind of cluster; local: on this machine."
)
_NAME = click.argument("name", metavar="NAME", shell_complete=_complete)
_DEALLOCATION = click.option(
    "--deallocation",
    type=click.Choice(["requeue", "terminate", "wait"]),
    help="Jobs on nodes that are removed: queue them again, cancel them, or wait for them.",
)
_IDLE_TIME = click.option("--idle-time", metavar="TIME", help="Auto-scale: remove nodes idle for this time: 10m.")


@click.group(
    "cluster",
    cls=Verbs,
    epilog=examples(
        "petctl cluster create small --nodes 2",
        "petctl run -c small -n 2 train.py",
        "petctl cluster create burst --min 0 --max 8 --setup 'pip install -r needs.txt' --setup-output /data/setup",
        "petctl cluster nodes small",
        "petctl cluster delete small",
    ),
)
def command() -> None:
    """Create, resize and delete clusters on this machine: nodes with a queue of their own.

    A job gets whole nodes; jobs wait in line until enough are idle. The cluster called local is always there.
    """


@command.command(
    epilog=examples(
        "petctl cluster create small --nodes 2",
        "petctl cluster create burst --min 0 --max 8 --idle-time 5m",
        "petctl cluster create lab --nodes 2 --mount data=/srv/data --mount-command 'nfs=mount -t nfs srv:/x'",
        "petctl cluster create lab -f cluster.yaml",
    )
)
@click.argument("name", metavar="NAME")
@click.option("--nodes", metavar="N", type=click.IntRange(min=0), help="Number of nodes.")
@click.option("--min", "low", metavar="N", type=click.IntRange(min=0), help="Auto-scale: minimum number of nodes.")
@click.option("--max", "high", metavar="N", type=click.IntRange(min=1), help="Auto-scale: maximum number of nodes.")
@_IDLE_TIME
@_DEALLOCATION
@click.option("--gpus-per-node", metavar="N", type=click.IntRange(min=0), help="GPUs per node.")
@click.option("--setup", metavar="LINE", help="Run this shell command once on each new node.")
@click.option("--setup-output", metavar="DIR", help="Write its output to DIR/NAME/NODE/stdout.txt and stderr.txt.")
@click.option("--setup-env", metavar="NAME=VALUE", multiple=True, help="Environment of the setup command.")
@click.option("--setup-secret", metavar="NAME=SECRET", multiple=True, help="The same, from a stored secret.")
@click.option(
    "--mount", "mounts", metavar="PATH=DIR", multiple=True, help="Mount DIR for all jobs: $PETCTL_CLUSTER_MOUNTS/PATH."
)
@click.option(
    "--mount-command", metavar="PATH=LINE", multiple=True, help="Mount with this shell command; the path is appended."
)
@click.option("-f", "--file", metavar="FILE", help="YAML or JSON with the same fields; options override it.")
@_KIND
@output_option("table", "json")
def create(
    name: str,
    nodes: int | None,
    low: int | None,
    high: int | None,
    idle_time: str | None,
    deallocation: str | None,
    gpus_per_node: int | None,
    setup: str | None,
    setup_output: str | None,
    setup_env: tuple[str, ...],
    setup_secret: tuple[str, ...],
    mounts: tuple[str, ...],
    mount_command: tuple[str, ...],
    file: str | None,
    kind: str,
    output: str,
) -> None:
    """Make a cluster. Its nodes are prepared in the background; jobs can be submitted to it at once."""
    from petctl.clusters.provisioner import find_provisioner
    from petctl.home import petctl_home
    from petctl.job.spec.problems import FieldError

    document = read_description(file) if file else None
    spec = description(
        document,
        {"nodes": nodes, "min": low, "max": high},
        {"idle_time": seconds(idle_time), "deallocation": deallocation, "gpus_per_node": gpus_per_node},
        {"command": setup, "output": setup_output, "env": pairs(setup_env), "secrets": pairs(setup_secret)},
        pairs(mounts),
        pairs(mount_command),
    )
    try:
        view = find_provisioner(kind).create(petctl_home(), name, spec)
    except FieldError as error:
        if document:
            document.check(error.problems)
        raise
    _show(view, output)


@command.command(epilog=examples("petctl cluster show small", "petctl cluster show small -o json"))
@_NAME
@_KIND
@output_option("table", "json")
def show(name: str, kind: str, output: str) -> None:
    """Show one cluster: its size, how many nodes are in which state, its jobs, what is wrong."""
    from petctl.clusters.provisioner import find_provisioner
    from petctl.home import petctl_home

    _show(find_provisioner(kind).read(petctl_home(), name), output)


@command.command("list", epilog=examples("petctl cluster list", "petctl cluster list -o json"))
@_KIND
@output_option("table", "json")
def list_(kind: str, output: str) -> None:
    """List the clusters of a kind that were made: on this machine, unless -k names another kind."""
    from petctl.clusters.provisioner import find_provisioner
    from petctl.home import petctl_home

    found = find_provisioner(kind).read_all(petctl_home())
    if output == "json":
        print_json(found)
    elif not found:
        click.echo("petctl: only the cluster local exists; create one: petctl cluster create NAME --nodes 2", err=True)
    else:
        from petctl.cli.terminal.table import print_table

        rows = [
            [
                view["name"],
                _size(view),
                *(str(view["counts"].get(state, 0)) for state in _COUNTS),
                str(len(view["queued"])),
            ]
            for view in found
        ]
        print_table(["NAME", "SIZE", *(state.upper() for state in _COUNTS), "QUEUED"], rows)


@command.command(
    epilog=examples(
        "petctl cluster delete small",
        "petctl cluster delete small --force      its jobs are cancelled first",
    )
)
@_NAME
@click.option("--force", is_flag=True, help="Cancel its running and queued jobs first.")
@_KIND
@output_option("table", "json")
def delete(name: str, force: bool, kind: str, output: str) -> None:
    """Delete a cluster: its nodes, its queue and its mounts. What its jobs have made stays, as after any job."""
    from petctl.clusters.provisioner import find_provisioner
    from petctl.home import petctl_home

    find_provisioner(kind).delete(petctl_home(), name, force)
    if output == "json":
        print_json({"deleted": name})
    else:
        click.echo(f"petctl: deleted cluster {name}", err=True)


@command.command(
    epilog=examples(
        "petctl cluster resize small 4",
        "petctl cluster resize small 0 --deallocation wait      nodes leave when their jobs end",
    )
)
@_NAME
@click.argument("nodes", metavar="N", type=click.IntRange(min=0))
@_DEALLOCATION
@_KIND
@output_option("table", "json")
def resize(name: str, nodes: int, deallocation: str | None, kind: str, output: str) -> None:
    """Give a cluster so many nodes; auto-scale ends.

    Idle nodes go first. An elastic job that can do with fewer nodes gets smaller; --deallocation says what happens to
    others.
    """
    from petctl.clusters.provisioner import find_provisioner
    from petctl.home import petctl_home

    _show(find_provisioner(kind).change(petctl_home(), name, nodes=nodes, deallocation=deallocation), output)


@command.command(epilog=examples("petctl cluster autoscale small --min 0 --max 4 --idle-time 5m"))
@_NAME
@click.option("--min", "low", metavar="N", type=click.IntRange(min=0), required=True, help="Minimum number of nodes.")
@click.option("--max", "high", metavar="N", type=click.IntRange(min=1), required=True, help="Maximum number of nodes.")
@_IDLE_TIME
@_DEALLOCATION
@_KIND
@output_option("table", "json")
def autoscale(
    name: str, low: int, high: int, idle_time: str | None, deallocation: str | None, kind: str, output: str
) -> None:
    """Let a cluster have as many nodes as its running and queued jobs need, between a minimum and a maximum."""
    from petctl.clusters.provisioner import find_provisioner
    from petctl.home import petctl_home

    bored = seconds(idle_time)
    _show(
        find_provisioner(kind).change(
            petctl_home(), name, min=low, max=high, deallocation=deallocation, idle_time=bored
        ),
        output,
    )


@command.command(
    epilog=examples(
        "petctl cluster nodes small",
        "petctl cluster nodes small --reset 1      set up an unusable node again",
    )
)
@_NAME
@click.option("--reset", metavar="NODE", multiple=True, help="Run setup again on this node; repeatable.")
@_KIND
@output_option("table", "json")
def nodes(name: str, reset: tuple[str, ...], kind: str, output: str) -> None:
    """List a cluster's nodes: their states, the jobs that have them, why one cannot be used."""
    from petctl.clusters.provisioner import find_provisioner
    from petctl.home import petctl_home

    pools = find_provisioner(kind)
    for node in reset:
        pools.reset(petctl_home(), name, node)
    rows = pools.nodes(petctl_home(), name)
    if output == "json":
        print_json(rows)
    elif not rows:
        click.echo(f"petctl: cluster {name} currently has no nodes", err=True)
    else:
        import time

        from petctl.cli.terminal.table import print_table
        from petctl.cli.terminal.text import duration

        now = time.time()
        cells = [[row["name"], row["state"], duration(now - row["since"]), row["job"], row["job_node"]] for row in rows]
        print_table(["NODE", "STATE", "SINCE", "JOB", "ITS NODE"], cells)
        for row in rows:
            if row["reason"]:
                click.echo(f"\nnode {row['name']} is unusable: {row['reason']}")


def _show(view: dict[str, Any], output: str) -> None:
    if output == "json":
        print_json(view)
        return
    counts = ", ".join(f"{count} {state}" for state, count in view["counts"].items() if count)
    lines = [
        f"{view['name']}  {view.get('allocation', '')}".rstrip(),
        f"  size       {_size(view)}" + (f"; deallocation: {how}" if (how := view.get("deallocation")) else ""),
        f"  nodes      {view['nodes']}" + (f": {counts}" if counts else ""),
        f"  jobs       {len(view['running'])} running, {len(view['queued'])} queued",
    ]
    lines += [f"  setup      {view['setup']['command']}"] if view.get("setup") else []
    for mount in view.get("mounts", ()):
        lines.append(f"  mount      {view['mount_root']}/{mount['path']}: {mount['directory'] or mount['command']}")
    lines += [f"  {problem}" for problem in view.get("problems", ())]
    click.echo("\n".join(lines))


def _size(view: dict[str, Any]) -> str:
    scale = view["scale"]
    return f"{scale['min']}..{scale['max']}" if scale["mode"] == "auto" else str(scale["nodes"])
