"""batchai job: create, resubmit, show, list, wait, terminate, delete. Files: `job_files.py`; nodes: `nodes.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from petctl.compat.batchai.cli import options
from petctl.compat.batchai.cli.base_command import NOTHING, Exit, IdleOption, confirm, detail, option, say
from petctl.compat.batchai.cli.job_files import add_job_files
from petctl.compat.batchai.cli.nodes import add_job_nodes
from petctl.compat.batchai.cli.printing import columns
from petctl.compat.batchai.cli.resources import Resource, verbs_of
from petctl.compat.batchai.service import report
from petctl.compat.batchai.service.names import Address
from petctl.compat.batchai.service.resource_store import Tree
from petctl.compat.batchai.service.resources import trail_of

if TYPE_CHECKING:
    from petctl.job.spec import Job
    from petctl.job.spec.job import Prepared

cluster_option = option(
    "-c, --cluster NAME",
    "Of the workspace, by name or id; or any cluster that petctl knows. Else as the file says, else local.",
    names="clusters",
)
start_options = options.together(
    option("--no-container", "Run without a container, even if the job file has an image."),
    option("--dry-run", "Only print what would be started."),
)


def _shown(address: Address) -> object:
    from petctl.compat.batchai.service.job_state import look

    record, seen = look(options.home(), address)
    return report.job(address, record, record["properties"], seen)


JOB = Resource(
    "jobs",
    "Jobs: from a job file, in an experiment, on a cluster.",
    columns(
        "Name name, Cluster cluster.id/-1, Cluster RG cluster.resourceGroup, Cluster Workspace cluster.id/8, "
        "Tool toolType, Nodes nodeCount, State executionState, Exit code executionInfo.exitCode"
    ),
    _shown,
    "-n mnist",
    told=": what its file said, and how it stands",
    along=", which is ended first; what it wrote to its mounts stays",
)
job = verbs_of(JOB)
add_job_files(job)
add_job_nodes(job)


@options.verb(
    job,
    "create -n mnist -c nc6 -g recipes -w lab -e chainer -f job.json --storage-account-name mystorage",
    "create -n mnist -f job.json                    everything that is not named: default, and made",
    "create -n mnist -f job.json --dry-run",
    given=True,
)
@cluster_option
@option("-f, --config-file FILE", "The job file.", required=True)
@options.storage_options
@start_options
@options.no_wait_option
def create(
    given: Address,
    address: Address,
    cluster: str | None,
    config_file: str,
    account: str,
    key: str,
    no_container: bool,
    dry_run: bool,
    no_wait: bool,
    **mounts: Any,
) -> object:
    """Submit a job from a job file, under a name that no job of the experiment has."""
    from msgspec.structs import replace

    from petctl.compat.batchai.jobfile import as_reported
    from petctl.compat.batchai.service.clusters import find_target
    from petctl.compat.batchai.service.mounts import wanted_mounts

    added = wanted_mounts(options.home(), address, mounts, account)

    def read(name: str) -> Prepared:
        from petctl.compat.batchai.jobfile import JobFile, Names, read_file
        from petctl.compat.batchai.service.volumes import resolver, secret_of

        names = Names(address.group, address.workspace, address.experiment, address.name, name)
        return read_file(config_file, JobFile(resolver(options.home()), names, account, key, added, secret_of))

    if not cluster:
        said = as_reported(read("").job)["cluster"] or {}
        cluster = said.get("id") or "local"
    target = find_target(options.home(), cluster, address)
    reading = read(target["petctl"])
    for remark in reading.remarks:
        say(remark)
    job = replace(reading.job, image="", image_credentials="") if no_container else reading.job
    return _submitted(given, address, target, job, reading.secrets, dry_run)


@options.verb(
    job, "resubmit -n mnist                             as mnist-2", "resubmit -n mnist --new-name again -c k8s"
)
@option("--new-name NAME", "Name of the new job; default: the old one with a number.")
@cluster_option
@start_options
def resubmit(address: Address, new_name: str | None, cluster: str | None, no_container: bool, dry_run: bool) -> object:
    """Run a job again, as a new one, exactly as its file said then; its outputs get a directory of their own."""
    from msgspec.structs import replace

    from petctl.compat.batchai.service.clusters import find_target
    from petctl.compat.batchai.service.jobs import again

    tree = Tree(options.home())
    record = tree.read(trail_of("jobs", address))
    taken = tree.names(trail_of("experiments", address), "jobs")
    free = (f"{address.name}-{number}" for number in range(2, len(taken) + 3))
    new = address._replace(name=new_name or next(name for name in free if name not in taken))
    target = find_target(options.home(), cluster, address) if cluster else record["cluster"]
    job = again(options.home(), address, new.name, target["petctl"])
    job = replace(job, image="", image_credentials="") if no_container else job
    return _submitted(new, new, target, job, {}, dry_run)


@options.verb(job, "wait -n mnist")
@option("--interval SECONDS", "Accepted; a change is told when it happens.", cls=IdleOption, type=float)
def wait(address: Address, interval: float | None) -> object:
    """Wait for a job to end, say every change of its state, exit with its exit code."""
    from petctl.compat.batchai.service.job_state import watch_states

    seen = watch_states(options.home(), address, lambda state: click.echo(f"Job state: {state}"))
    failed = seen["state"] != "succeeded"
    if failed:
        say(seen["sentence"])
    return Exit(failed if seen["exit_code"] is None else seen["exit_code"])


@options.verb(job, "terminate -n mnist -y", ids=True)
@options.yes_option
@options.no_wait_option
def terminate(address: Address, yes: bool, no_wait: bool) -> object:
    """End a job; its workers get their grace, its name and files stay."""
    from petctl.compat.batchai.service.jobs import handle_of, terminate_job

    handle_of(options.home(), address)
    confirm(f"Terminate job {address.name!r}?", yes)
    terminate_job(options.home(), address, wait=not no_wait)
    return NOTHING


def _submitted(
    given: Address, address: Address, target: dict[str, Any], job: Job, secrets: Mapping[str, str], dry_run: bool
) -> object:
    """Submits it, or with `dry_run` shows what that would be; a job whose image nobody here can run goes without."""
    from petctl.compat.batchai.jobfile import as_reported
    from petctl.compat.batchai.service.jobs import create_job, planned

    job = _without_engine(job, target["petctl"])
    if dry_run:
        return {"cluster": target, "petctl": planned(options.home(), target, job).to_dict()}
    record = create_job(options.home(), given, address, target, job, as_reported(job), secrets)
    detail(f"petctl's job is {record['petctl']} on cluster {target['petctl']}; its results: {record['results']}")
    return _shown(address)


def _without_engine(job: Job, cluster: str) -> Job:
    from msgspec.structs import replace

    from petctl.compat.missing_engine import lacks_engine

    if not lacks_engine(options.home(), cluster, job.image):
        return job
    say(
        f"no podman or docker works here: not using the image {job.image}; the job runs without a container on "
        f"this machine"
    )
    return replace(job, image="", image_credentials="")
