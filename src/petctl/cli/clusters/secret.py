"""petctl secret: values that jobs name by reference. A value is read from stdin or asked for; never from the words."""

from __future__ import annotations

import sys

import click

from petctl.console.commands import Verbs, examples, output_option, print_json
from petctl.errors import UsageError

_CLUSTER = click.option(
    "-c", "--cluster", metavar="NAME", default="", help="Cluster of the jobs; default: this machine."
)


@click.group(
    "secret",
    cls=Verbs,
    epilog=examples(
        "petctl secret set wandb                  asks for the value",
        "petctl secret set wandb < key.txt",
        "petctl run --secret WANDB_API_KEY=wandb train.py",
        "petctl secret ls",
        "petctl secret set -c k8s wandb < key.txt",
    ),
)
def command() -> None:
    """Store secrets for jobs (--secret ENV=NAME).

    They lie in a file that only you can read, or in a Secret of the cluster, and reach the workers' environment; they
    are in no job file, log or argv.
    """


@command.command("set", epilog=examples("petctl secret set wandb", "petctl secret set wandb < key.txt"))
@click.argument("name")
@_CLUSTER
@output_option()
def set_(name: str, cluster: str, output: str) -> None:
    """Store the secret NAME: its value is asked for, or read from stdin (one newline at the end is dropped)."""
    from petctl.jobs.secrets import set_secret

    if sys.stdin.isatty():
        value = click.prompt("value", hide_input=True, err=True)
    else:
        value = sys.stdin.read().removesuffix("\n").removesuffix("\r")
    if not value:
        raise UsageError(f"the value of secret {name!r} is empty; give it on stdin: petctl secret set {name} < FILE")
    set_secret(name, value, cluster)
    if output == "json":
        print_json({"stored": name})
    else:
        where = f"-c {cluster} " if cluster else ""
        click.echo(f"petctl: stored secret {name}; use it with: petctl run {where}--secret ENV={name} ...", err=True)


@command.command("ls", epilog=examples("petctl secret ls", "petctl secret ls -o json"))
@_CLUSTER
@output_option()
def ls(cluster: str, output: str) -> None:
    """List the names of the stored secrets, never their values."""
    from petctl.jobs.secrets import list_secrets

    names = list_secrets(cluster)
    if output == "json":
        print_json(names)
    else:
        for name in names:
            click.echo(name)


@command.command("rm", epilog=examples("petctl secret rm wandb"))
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@_CLUSTER
@output_option()
def rm(names: tuple[str, ...], cluster: str, output: str) -> None:
    """Remove secrets."""
    from petctl.jobs.secrets import remove_secret

    for name in names:
        remove_secret(name, cluster)
        if output != "json":
            click.echo(f"petctl: removed secret {name}", err=True)
    if output == "json":
        print_json({"removed": list(names)})
