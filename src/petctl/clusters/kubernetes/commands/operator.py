"""petctl operator: the operator for ElasticJobs, put into a cluster, taken out of it, or run here."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Callable

import click

from petctl.console.commands import Decorated, Verbs, examples, output_option, print_json
from petctl.errors import UsageError
from petctl.text import counted

if TYPE_CHECKING:
    from petctl.clusters.kubernetes.operator.install.objects import InstallOptions
    from petctl.kube.api import Api

_CLUSTER = click.option("-c", "--cluster", metavar="NAME", default="k8s", show_default=True, help="Kubernetes cluster.")


def _where(command: Decorated) -> Decorated:
    """The options that say which operator is meant."""
    options: list[Callable[[Decorated], Decorated]] = [
        click.option("--namespace", metavar="NS", help="Namespace of the operator.  [default: petctl-system]"),
        click.option(
            "--only-namespace",
            metavar="NS",
            default="",
            help="Manage only this namespace, with no rights beyond it, and run there too, unless "
            "--namespace is given.",
        ),
    ]
    for option in options:
        command = option(command)
    return command


@click.group(
    "operator",
    cls=Verbs,
    epilog=examples(
        "petctl operator install                  for the whole cluster; again to upgrade it",
        "petctl operator uninstall",
        "petctl operator run --namespace team     in this process, for development",
    ),
)
def command() -> None:
    """Install the operator for ElasticJobs on Kubernetes, take it out, or run it here.

    With it, a job is one object that kubectl applies, scales and deletes. petctl itself does not need it.
    """


@command.command(
    epilog=examples(
        "petctl operator install",
        "petctl operator install -c west --image registry.example/python:3.12",
        "petctl operator install --only-namespace research",
        "petctl operator install --dry-run | kubectl apply --server-side -f -",
    )
)
@_CLUSTER
@click.option("--image", metavar="IMAGE", default="", help="Image with Python 3.11 or newer as python3.")
@_where
@click.option(
    "--replicas",
    metavar="N",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="Replicas of the operator.",
)
@click.option("--pull-secret", metavar="NAME", multiple=True, help="Secret to pull the image with.")
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=120.0,
    show_default=True,
    help="Wait this long for a leader; 0: do not wait.",
)
@click.option("--dry-run", is_flag=True, help="Print the objects; change nothing.")
@output_option("yaml", "json")
def install(
    cluster: str,
    image: str,
    namespace: str | None,
    only_namespace: str,
    replicas: int,
    pull_secret: tuple[str, ...],
    timeout: float,
    dry_run: bool,
    output: str,
) -> None:
    """Install or upgrade the operator, and wait until it leads.

    Takes the rights of an administrator of the cluster.
    """
    from petctl.clusters.agent_archive import operator_bytes
    from petctl.clusters.kubernetes.operator.install.objects import IMAGE, UNPACKED, objects

    wishes = _wishes(namespace, only_namespace)
    wishes = wishes._replace(image=image or IMAGE, replicas=replicas, pull_secrets=pull_secret)
    if dry_run:
        from petctl.submission.render import as_text

        click.echo(as_text(objects(wishes, operator_bytes(UNPACKED)), output), nl=False)
        return
    from petctl.clusters.kubernetes.operator.install.installer import install as install_it

    with _api(cluster) as api, _Telling(output == "json") as tell:
        sentence = install_it(api, wishes, operator_bytes(UNPACKED), tell, timeout)
    if output == "json":
        print_json({"namespace": wishes.namespace, "only_namespace": only_namespace or None, "sentence": sentence})
    else:
        click.echo(f"petctl: {sentence}", err=True)


@command.command(
    epilog=examples(
        "petctl operator uninstall",
        "petctl operator uninstall --with-jobs       ElasticJobs and their definition, too",
        "petctl operator uninstall --only-namespace research",
    )
)
@_CLUSTER
@_where
@click.option("--with-jobs", is_flag=True, help="Also delete its ElasticJobs and their definition.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@output_option()
def uninstall(
    cluster: str, namespace: str | None, only_namespace: str, with_jobs: bool, yes: bool, output: str
) -> None:
    """Remove the operator. ElasticJobs stay: they go on training, and what they lose nobody replaces."""
    from petctl.clusters.kubernetes.operator.install.installer import jobs
    from petctl.clusters.kubernetes.operator.install.installer import uninstall as uninstall_it

    wishes = _wishes(namespace, only_namespace)
    with _api(cluster) as api:
        found = jobs(api, wishes)
        if with_jobs and found and not yes and sys.stdin.isatty():
            names = ", ".join(f"{job['metadata']['namespace']}/{job['metadata']['name']}" for job in found)
            click.confirm(
                f"petctl: this also deletes {counted(len(found), 'ElasticJob')}: {names}. Go on?", abort=True, err=True
            )
        with _Telling(output == "json") as tell:
            removed = uninstall_it(api, wishes, with_jobs, tell)
    left = 0 if with_jobs else len(found)
    if output == "json":
        print_json({"removed": removed, "jobs_left": left})
        return
    what = f"{counted(len(removed), 'object')} removed" if removed else f"there was no operator in {wishes.namespace}"
    stay = f"; {counted(left, 'ElasticJob')} left, without an operator" if left else ""
    click.echo(f"petctl: {what}{stay}", err=True)


@command.command(
    epilog=examples(
        "petctl operator run                                            all namespaces, as an administrator",
        "petctl operator run --namespace team                           the jobs of one",
        "petctl operator run --lease-namespace petctl-system            beside an installed one: one of them "
        "is the leader",
    )
)
@click.option("--namespace", metavar="NS", default="", help="Only the jobs of this namespace.  [default: all]")
@click.option("--lease-namespace", metavar="NS", default="", help="Namespace of its Lease.  [default: the context's]")
@click.option(
    "--workers", metavar="N", type=click.IntRange(min=1), default=4, show_default=True, help="Jobs handled in parallel."
)
@click.option(
    "--health-port",
    metavar="PORT",
    type=click.IntRange(0, 65535),
    default=0,
    help="Serve /healthz, /readyz, /metrics on this port.",
)
@click.option("--kubeconfig", metavar="FILE", default="", help="Kubeconfig file, as for kubectl.")
@click.option("--context", metavar="NAME", default="", help="Context of the kubeconfig.")
def run(**options: Any) -> int:
    """Run the operator in this process, until Ctrl-C. For development; install is for everything else."""
    from petctl.clusters.kubernetes.operator.run import main

    given = {f"--{name.replace('_', '-')}": str(value) for name, value in options.items() if value}
    return main([word for pair in given.items() for word in pair])


def _wishes(namespace: str | None, only_namespace: str) -> InstallOptions:
    from petctl.clusters.kubernetes.operator.install.objects import NAMESPACE, InstallOptions

    return InstallOptions(namespace=namespace or only_namespace or NAMESPACE, only_namespace=only_namespace)


def _api(cluster: str) -> Api:
    from petctl.config.settings import cluster_settings
    from petctl.kinds import canonical_kind
    from petctl.kube.api import Api
    from petctl.kube.kubeconfig import find_access

    settings = cluster_settings(cluster)
    if canonical_kind(str(settings.get("kind", cluster))) != "kubernetes":
        raise UsageError(f"{cluster} is not a Kubernetes cluster; petctl.yaml would say kind: kubernetes")
    return Api(find_access(settings))


class _Telling:
    """What it is at: a moving line on a terminal, elsewhere only what it waits for, each once."""

    def __init__(self, quiet: bool) -> None:
        from petctl.console.screen import Screen

        self._screen = Screen(prefix=False, quiet=quiet)
        self._said = ""

    def __enter__(self) -> Callable[[str], None]:
        return self._tell

    def __exit__(self, *_: object) -> None:
        self._screen.close()

    def _tell(self, sentence: str) -> None:
        self._screen.status(sentence)
        if not self._screen.live and sentence.startswith("waiting") and sentence != self._said:
            self._said = sentence
            self._screen.say(sentence)
