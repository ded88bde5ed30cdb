"""petctl volume: a shared file system as objects for a cluster's administrator."""

from __future__ import annotations

import click

from petctl.console.commands import examples, output_option
from petctl.errors import UsageError


@click.command(
    "volume",
    epilog=examples(
        "petctl volume --kind efs --id fs-0123456789abcdef0 data | kubectl apply -f -",
        "petctl volume --kind nfs --id files.example.org:/export --namespace research data",
        "petctl volume --kind azure-files --id account/share --secret azure --namespace research data",
    ),
)
@click.argument("name", metavar="NAME")
@click.option("--kind", type=click.Choice(["efs", "azure-files", "nfs"]), required=True, help="Kind of file system.")
@click.option("--id", "where", metavar="ID", required=True, help="Its id: fs-..., ACCOUNT/SHARE or SERVER:/PATH.")
@click.option("--size", metavar="SIZE", default="100GiB", show_default=True, help="Maximum size of a claim.")
@click.option("--namespace", metavar="NAMESPACE", default="", help="Reserve it for the claim NAME in this namespace.")
@click.option("--secret", metavar="NAME", default="", help="Azure Files: Secret with the account's name and key.")
@output_option("yaml", "json")
def command(name: str, kind: str, where: str, size: str, namespace: str, secret: str, output: str) -> None:
    """Print the StorageClass and PersistentVolume that make a shared file system known to a Kubernetes cluster.

    They belong to the whole cluster, so an administrator applies them, once. From then on jobs can claim it.
    """
    from petctl.clusters.kubernetes.commands.admin_volumes import volume_objects
    from petctl.job.spec.problems import FieldError
    from petctl.job.spec.volumes import byte_quantity
    from petctl.submission.render import as_text

    try:
        amount = byte_quantity(size or 0)
    except FieldError as error:
        raise UsageError(f"--size {size}: {error.problems[0].sentence}") from None
    objects = volume_objects(kind, name, where, amount, namespace, secret)
    said = f"{{claim: {name}, path: /data, size: {amount}, storage_class: {name}}}"
    click.echo(f"petctl: a job file claims it with: volumes: [{said}]", err=True)
    click.echo(as_text(objects, output), nl=False)
