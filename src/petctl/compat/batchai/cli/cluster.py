"""batchai cluster: create, resize, auto-scale, file list, and the usual verbs. Nodes are in `nodes.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from petctl.compat.batchai.cli import options
from petctl.compat.batchai.cli.base_command import detail, group, leaf, say_idle, was_given
from petctl.compat.batchai.cli.crud import Resource, add_usual_verbs
from petctl.compat.batchai.cli.job_files import file_row
from petctl.compat.batchai.cli.nodes import add_cluster_nodes

if TYPE_CHECKING:
    from petctl.compat.batchai.service.names import Address

NAME = ("-n", "--name")
CLUSTER = ("-c", "--cluster")
cluster = group("cluster", "Clusters: nodes that jobs run on.")
files = group("file", "Files that a cluster's setup task has written.", cluster)
add_cluster_nodes(cluster)


def _row(found: Any) -> dict[str, Any]:
    counts = found["nodeStateCounts"]
    return {
        "Name": found["name"],
        "Resource Group": found["resourceGroup"],
        "Workspace": found["id"].split("/")[8],
        "VM Size": found["vmSize"],
        "State": found["allocationState"],
        "Idle": counts["idleNodeCount"],
        "Running": counts["runningNodeCount"],
        "Preparing": counts["preparingNodeCount"],
        "Leaving": counts["leavingNodeCount"],
        "Unusable": counts["unusableNodeCount"],
    }


@leaf(
    cluster,
    "create",
    "batchai cluster create -n nc6 -g recipes -w lab -s Standard_NC6 -t 2 --generate-ssh-keys",
    "batchai cluster create -n elastic -g recipes -w lab --min 0 --max 4",
    "batchai cluster create -n nc6 -g recipes -w lab -f cluster.json -t 3",
    row=_row,
)
@options.addressed("clusters", *NAME)
@click.option("-t", "--target", type=click.IntRange(0), metavar="N", help="Nodes to have now.")
@click.option("--min", type=click.IntRange(0), metavar="N", help="Auto-scale: minimum number of nodes.")
@click.option("--max", type=click.IntRange(0), metavar="N", help="Auto-scale: maximum number of nodes.")
@click.option("--vm-priority", type=click.Choice(["dedicated", "lowpriority"]), help="Kept.")
@click.option("-i", "--image", metavar="IMAGE", help="Kept: UbuntuLTS, UbuntuDSVM or publisher:offer:sku:version.")
@click.option("--custom-image", metavar="ID", help="Kept; needs --image.")
@options.machine_options
@options.storage_options
@click.option("--use-auto-storage", is_flag=True, help="Mount a share at autoafs, a container at autobfs; made once.")
@click.option("--setup-task", metavar="LINE", help="A shell line, run on each node when it is made.")
@click.option("--setup-task-output", metavar="DIR", help="Where its output goes; $AZ_BATCHAI_MOUNT_ROOT may be in it.")
@click.option("-f", "--config-file", metavar="FILE", help="cluster.json; options override it.")
@options.no_wait_option
def create(address: Address, account: str, key: str, config_file: str | None, no_wait: bool, **given: Any) -> object:
    """Make a cluster of nodes on this machine. Jobs may name it before its nodes are ready."""
    from petctl.cli.job_file import resolver
    from petctl.compat.batchai.jobfile import read_settings
    from petctl.compat.batchai.service.clusters import create_cluster
    from petctl.compat.batchai.service.machines import CLUSTER as FIELDS
    from petctl.compat.batchai.service.machines import cluster_settings, idle_words
    from petctl.compat.batchai.service.mounts import wanted_mounts, with_mounts

    properties = read_settings(config_file, FIELDS, account, key) if config_file else {}
    added = wanted_mounts(options.home(), address, given, account)
    if added:
        setup = properties.get("nodeSetup") or {}
        mounts = with_mounts(setup.get("mountVolumes") or {}, added)
        properties["nodeSetup"] = {**setup, "mountVolumes": mounts}
    settings = cluster_settings(properties, given)
    say_idle(idle_words({**_idle_fields(properties), **{name: value for name, value in given.items() if value}}))
    record = create_cluster(options.home(), address, settings, resolver(options.home()))
    detail(f"petctl's name for it is {record['petctl']}; see: petctl cluster show {record['petctl']}")
    return _shown(address)


@leaf(cluster, "resize", "batchai cluster resize -n nc6 -g recipes -w lab -t 0", row=_row)
@options.addressed("clusters", *NAME, ids=True)
@click.option("-t", "--target", type=click.IntRange(0), required=True, metavar="N", help="Nodes to have; 0 is allowed.")
@options.no_wait_option
def resize(address: Address, target: int, no_wait: bool) -> object:
    """Have another number of nodes; also ends auto-scale."""
    from petctl.compat.batchai.service.clusters import resize_cluster

    resize_cluster(options.home(), address, target)
    return _shown(address)


@leaf(cluster, "auto-scale", "batchai cluster auto-scale -n nc6 -g recipes -w lab --min 0 --max 4", row=_row)
@options.addressed("clusters", *NAME, ids=True)
@click.option("--min", "least", type=click.IntRange(0), required=True, metavar="N", help="Minimum number of nodes.")
@click.option("--max", "most", type=click.IntRange(0), required=True, metavar="N", help="Maximum number of nodes.")
@options.no_wait_option
def auto_scale(address: Address, least: int, most: int, no_wait: bool) -> object:
    """Let the number of nodes follow the running and queued jobs."""
    from petctl.compat.batchai.service.clusters import autoscale_cluster

    autoscale_cluster(options.home(), address, least, most)
    return _shown(address)


@leaf(files, "list", "batchai cluster file list -c nc6 -g recipes -w lab -p 0", row=file_row)
@options.addressed("clusters", *CLUSTER)
@options.path_option
@options.expiry_option
def file_list(address: Address, path: str, expiry: int) -> object:
    """List what the setup task wrote: a folder for each node, with stdout.txt and stderr.txt."""
    from petctl.compat.batchai.service.clusters import setup_output
    from petctl.compat.batchai.service.files import list_files
    from petctl.errors import UsageError

    place = setup_output(options.home(), address)
    if place is None:
        raise UsageError(f"cluster {address.name!r} has no setup task, or no nodes; there are no files of it")
    say_idle(["--expiry"] if was_given("expiry") else [])
    return list_files(place, path)


def _shown(address: Address) -> object:
    from petctl.compat.batchai.service import report
    from petctl.compat.batchai.service.clusters import read_cluster

    record, seen = read_cluster(options.home(), address)
    return report.cluster(address, record, seen)


def _idle_fields(properties: dict[str, Any]) -> dict[str, Any]:
    """What a settings file says that has no effect, in the names of the options."""
    return {"vm_size": properties.get("vmSize"), "subnet": properties.get("subnet")}


add_usual_verbs(
    cluster,
    Resource(
        "clusters",
        "cluster",
        NAME,
        _row,
        _shown,
        place="-g recipes -w lab",
        name="nc6",
        told=": its nodes by state, and what is wrong with them",
        along=" and end the jobs on it",
    ),
)
