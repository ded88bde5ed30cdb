"""Workspaces, clusters, file servers and experiments of `batchai`: one table of kinds, from which every kind has its
group of verbs with show, list and delete; and what each kind has beside those. Jobs, the fifth kind, are in `job.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import click

from petctl.compat.batchai.cli import options
from petctl.compat.batchai.cli.base_command import (
    NOTHING,
    Verbs,
    background,
    confirm,
    detail,
    group,
    leaf,
    option,
    say,
    say_idle,
    was_given,
)
from petctl.compat.batchai.cli.nodes import add_cluster_nodes
from petctl.compat.batchai.cli.printing import Row, columns
from petctl.compat.batchai.service import report
from petctl.compat.batchai.service.names import KINDS, Address, id_of
from petctl.compat.batchai.service.resource_store import Missing, Tree
from petctl.compat.batchai.service.resources import create_experiment, create_workspace, trail_of

FILE_ROW = columns("Name name, Type fileType, Size contentLength, Modified lastModified")

SHOWN = ("idle", "running", "preparing", "leaving", "unusable")


class Resource(NamedTuple):
    """Resources of one kind, in the words of the command line."""

    kind: str  # as ids have it
    about: str
    row: Row
    shown: Callable[[Address], object]
    example: str  # of naming one
    told: str = ""  # what `show` tells
    along: str = ""  # what goes along with a deleted one


def verbs_of(resource: Resource) -> Verbs:
    """The group of a kind's verbs, with show, list and delete."""
    kind, (noun, verb, *_) = resource.kind, KINDS[resource.kind]
    article = "an" if noun[0] in "aeiou" else "a"
    inside = {"workspaces": "all groups, or of one", "jobs": "an experiment"}.get(kind, "a workspace")
    near = " ".join(resource.example.split()[2:])
    made = group(verb, resource.about, row=resource.row)

    @options.verb(made, f"show {resource.example}", ids=True)
    def show(address: Address) -> object:
        return resource.shown(address)

    @leaf(made, f"list {near} -o table".replace("  ", " "))
    @options.surrounded(kind)
    def list_(near: list[Address]) -> object:
        return [found for place in near for found in _listed(resource, place)]

    @options.verb(made, f"delete {resource.example} -y", ids=True)
    @options.yes_option
    @options.no_wait_option
    def delete(address: Address, yes: bool, no_wait: bool) -> object:
        from petctl.compat.batchai.service.removal import delete as remove

        trail = options.record(kind, address)[0]
        confirm(f"Delete {noun} {trail[-1][1]!r}{resource.along}?", yes)
        if no_wait:
            background([verb, "delete", "-y", "--ids", id_of(kind, address)])
        else:
            remove(options.home(), kind, address)
        return NOTHING

    show.help = f"Show {article} {noun}{resource.told}."
    list_.help = f"List the {noun}s of {inside}."
    delete.help = f"Delete {article} {noun}{resource.along}."
    return made


def _listed(resource: Resource, near: Address) -> Iterator[Any]:
    tree, outer = Tree(options.home()), trail_of(resource.kind, near)[:-1]
    tree.read(outer)
    for name in tree.names(outer, resource.kind):
        try:
            yield resource.shown(options.filled(resource.kind, near._replace(name=name)))
        except Missing:
            continue  # deleted since


def _recorded(kind: str, shape: Callable[[Address, dict[str, Any]], object]) -> Callable[[Address], object]:
    """How one is shown whose record says everything."""
    return lambda address: shape(address, options.record(kind, address)[1])


def _cluster(address: Address) -> object:
    from petctl.compat.batchai.service.clusters import read_cluster

    return report.cluster(address, *read_cluster(options.home(), address))


WORKSPACE = Resource(
    "workspaces",
    "Workspaces: what clusters, file servers and experiments are in.",
    columns("Name name, Resource Group resourceGroup, Location location, State provisioningState"),
    _recorded("workspaces", report.workspace),
    "-n lab -g recipes",
    along=" with everything in it, its jobs first",
)
EXPERIMENT = Resource(
    "experiments",
    "Experiments: what jobs are in.",
    columns("Name name, Resource Group resourceGroup, Workspace id/8"),
    _recorded("experiments", report.experiment),
    "-n chainer -g recipes -w lab",
    along=" with its jobs, which are ended first",
)
FILE_SERVER = Resource(
    "fileservers",
    "File servers: directories that clusters and jobs mount by name.",
    columns(
        "Name name, Resource Group resourceGroup, Size vmSize, Disks dataDisks.diskCount, "
        "Public IP mountSettings.fileServerPublicIp, Internal IP mountSettings.fileServerInternalIp, "
        "Mount Point mountSettings.mountPoint"
    ),
    _recorded("fileservers", report.file_server),
    "-n data -g recipes -w lab",
    told=", and the directory that it is",
    along=" with its files",
)
CLUSTER = Resource(
    "clusters",
    "Clusters: nodes that jobs run on.",
    columns(
        "Name name, Resource Group resourceGroup, Workspace id/8, VM Size vmSize, State allocationState"
        + "".join(f", {word.title()} nodeStateCounts.{word}NodeCount" for word in SHOWN)
    ),
    _cluster,
    "-n nc6 -g recipes -w lab",
    told=": its nodes by state, and what is wrong with them",
    along=" and end the jobs on it",
)
workspace, experiment = verbs_of(WORKSPACE), verbs_of(EXPERIMENT)
cluster, file_server = verbs_of(CLUSTER), verbs_of(FILE_SERVER)


@options.verb(workspace, "create -g recipes -n lab -l eastus")
@options.location_option
def create_space(address: Address, location: str) -> object:
    """Make a workspace in a group that is there."""
    return report.workspace(address, create_workspace(options.home(), address, location))


@options.verb(experiment, "create -g recipes -w lab -n chainer")
def make_experiment(address: Address) -> object:
    """Make an experiment."""
    return report.experiment(address, create_experiment(options.home(), address))


@options.verb(file_server, "create -n data -g recipes -w lab -s Standard_D2 --disk-count 2 --disk-size 10")
@options.machine_options
@option("--disk-count N", "Kept.", type=click.IntRange(1))
@option("--disk-size GB", "Kept; there is as much room as on this disk.", type=click.IntRange(1))
@option("--storage-sku", "Kept.", type=click.Choice(["Premium_LRS", "Standard_LRS"]))
@option("--caching-type", "Kept.", type=click.Choice(["none", "readonly", "readwrite"]))
@option("-f, --config-file FILE", "A settings file; options override it.")
@options.no_wait_option
def create_file_server(address: Address, config_file: str | None, no_wait: bool, **given: Any) -> object:
    """Make a file server: a directory, mounted with --nfs or by `fileServers` of a job file."""
    from petctl.compat.batchai.jobfile import read_settings
    from petctl.compat.batchai.service import machines
    from petctl.compat.batchai.service.storage import create_server

    properties = read_settings(config_file, machines.FILE_SERVER) if config_file else {}
    record = create_server(options.home(), address, machines.server_settings(properties, given))
    idle = machines.idle_words(given)
    if idle:
        say(f"{', '.join(idle)}: kept, without effect; the file server is the directory {record['directory']}")
    return report.file_server(address, record)


@options.verb(
    cluster,
    "create -n nc6 -g recipes -w lab -s Standard_NC6 -t 2 --generate-ssh-keys",
    "create -n elastic -g recipes -w lab --min 0 --max 4",
    "create -n nc6 -g recipes -w lab -f cluster.json -t 3",
)
@option("-t, --target N", "Nodes to have now.", type=click.IntRange(0))
@option("--min N", "Auto-scale: minimum number of nodes.", type=click.IntRange(0))
@option("--max N", "Auto-scale: maximum number of nodes.", type=click.IntRange(0))
@option("--vm-priority", "Kept.", type=click.Choice(["dedicated", "lowpriority"]))
@option("-i, --image IMAGE", "Kept: UbuntuLTS, UbuntuDSVM or publisher:offer:sku:version.")
@option("--custom-image ID", "Kept; needs --image.")
@options.machine_options
@options.storage_options
@option("--use-auto-storage", "Mount a share at autoafs, a container at autobfs; made once.")
@option("--setup-task LINE", "A shell line, run on each node when it is made.")
@option("--setup-task-output DIR", "Where its output goes; $AZ_BATCHAI_MOUNT_ROOT may be in it.")
@option("-f, --config-file FILE", "cluster.json; options override it.")
@options.no_wait_option
def create_cluster(
    address: Address, account: str, key: str, config_file: str | None, no_wait: bool, **given: Any
) -> object:
    """Make a cluster of nodes on this machine. Jobs may name it before its nodes are ready."""
    from petctl.compat.batchai.jobfile import read_settings
    from petctl.compat.batchai.service import clusters, machines
    from petctl.compat.batchai.service.mounts import wanted_mounts, with_mounts
    from petctl.compat.batchai.service.volumes import resolver

    properties = read_settings(config_file, machines.CLUSTER, account, key) if config_file else {}
    added = wanted_mounts(options.home(), address, given, account)
    if added:
        setup = properties.get("nodeSetup") or {}
        mounts = with_mounts(setup.get("mountVolumes") or {}, added)
        properties["nodeSetup"] = {**setup, "mountVolumes": mounts}
    settings = machines.cluster_settings(properties, given)
    said = {"vm_size": properties.get("vmSize"), "subnet": properties.get("subnet")}  # in the names of the options
    say_idle(machines.idle_words({**said, **{name: value for name, value in given.items() if value}}))
    record = clusters.create_cluster(options.home(), address, settings, resolver(options.home()))
    detail(f"petctl's name for it is {record['petctl']}; see: petctl cluster show {record['petctl']}")
    return _cluster(address)


@options.verb(cluster, "resize -n nc6 -g recipes -w lab -t 0", ids=True)
@option("-t, --target N", "Nodes to have; 0 is allowed.", type=click.IntRange(0), required=True)
@options.no_wait_option
def resize(address: Address, target: int, no_wait: bool) -> object:
    """Have another number of nodes; also ends auto-scale."""
    from petctl.compat.batchai.service.clusters import change_cluster

    change_cluster(options.home(), address, nodes=target)
    return _cluster(address)


@options.verb(cluster, "auto-scale -n nc6 -g recipes -w lab --min 0 --max 4", ids=True)
@option("--min least N", "Minimum number of nodes.", type=click.IntRange(0), required=True)
@option("--max most N", "Maximum number of nodes.", type=click.IntRange(0), required=True)
@options.no_wait_option
def auto_scale(address: Address, least: int, most: int, no_wait: bool) -> object:
    """Let the number of nodes follow the running and queued jobs."""
    from petctl.compat.batchai.service.clusters import change_cluster

    change_cluster(options.home(), address, min=least, max=most)
    return _cluster(address)


add_cluster_nodes(cluster)
files = group("file", "Files that a cluster's setup task has written.", cluster, FILE_ROW)


@options.verb(files, "list -c nc6 -g recipes -w lab -p 0")
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
