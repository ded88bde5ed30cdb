"""petctl import: jobs that were written for others, as jobs of petctl's."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from petctl.console.commands import examples, output_option
from petctl.errors import UsageError

if TYPE_CHECKING:
    from petctl.job.spec import Job


@click.command(
    "import",
    epilog=examples(
        "petctl import elasticjob.yaml | kubectl apply -f -     for petctl's operator",
        "petctl import --command 'python3 /workspace/main.py' imagenet.yaml etcd.yaml",
        "petctl import --to job imagenet.yaml > job.yaml        for petctl run",
    ),
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(dir_okay=False, allow_dash=True))
@click.option(
    "--to",
    type=click.Choice(["elasticjob", "job"]),
    default="elasticjob",
    show_default=True,
    help="Convert to an object for the operator, or a job file.",
)
@click.option("--command", "line", metavar="LINE", help="Command of the image's ENTRYPOINT, if none is given.")
@click.option("--image", metavar="IMAGE", help="Use this image; without Python 3.9 it needs agentImage.")
@output_option("yaml", "json")
def command(files: tuple[str, ...], to: str, line: str | None, image: str | None, output: str) -> None:
    """Convert jobs of the old torchelastic operator, and pods written by hand, into jobs of petctl's.

    FILE holds Kubernetes objects: ElasticJobs of elastic.pytorch.org/v1alpha1, or pods with RDZV_ENDPOINT in their
    environment, with whatever stands beside them. What is left out is told on stderr, by name. '-' reads stdin.
    """
    from petctl.clusters.kubernetes.convert.convert import ConvertOptions, find_jobs
    from petctl.clusters.kubernetes.convert.converted import elastic_job, job
    from petctl.submission.render import as_text

    wishes = ConvertOptions(_words(line), image or "", fetches=to == "job")
    found, notes = find_jobs([document for file in files for document in _documents(file)], wishes)
    if not found:
        raise UsageError(f"found no job in {', '.join(files)}")
    if to == "job":
        if len(found) > 1:
            names = ", ".join(one.name for one in found)
            raise UsageError(
                f"a job file holds one job, but these files have {len(found)}: {names}; import them one by one"
            )
        whole, more = job(found[0])
        text, notes = _job_text(whole, output), [*notes, *more]
    else:
        text = as_text([elastic_job(one) for one in found], output)
    for note in notes:
        click.echo(f"petctl: {note}", err=True)
    click.echo(text, nl=False)


def _job_text(whole: Job, output: str) -> str:
    from petctl.job.file.write import job_to_dict, job_to_yaml
    from petctl.submission.render import as_text

    return job_to_yaml(whole) if output == "yaml" else as_text([job_to_dict(whole)], output)


def _words(line: str | None) -> list[str]:
    try:
        return shlex.split(line or "")
    except ValueError as error:
        raise UsageError(f"--command {line}: {str(error).lower()}") from None


def _documents(file: str) -> list[object]:
    """What it holds, as a cluster would get it: JSON knows no dates, and nothing that contains itself."""
    import json

    import yaml

    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file}: not UTF-8 text") from None
    try:
        found: list[object] = json.loads(json.dumps(list(yaml.safe_load_all(text)), default=str))
        return found
    except (ValueError, TypeError, RecursionError):
        raise UsageError(f"{file}: not a Kubernetes object: a part contains itself, or has no name") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark else file
        raise UsageError(f"{place}: not YAML: {getattr(error, 'problem', None) or 'cannot be read'}") from None
