"""Jobs out: the shortest mapping or YAML that `read.py` reads as the same job. Fields at their default are left out."""

from __future__ import annotations

from typing import Any

from petctl.job.spec.command import Command
from petctl.job.spec.job import Job

_OTHER_BREAKS = frozenset("\r\x85\u2028\u2029")


def job_to_dict(job: Job) -> dict[str, Any]:
    """A job as plain JSON types, in the shape of a job file."""
    changed = job.to_plain(Job(command=job.command))
    first = {"name": changed.pop("name")} if "name" in changed else {}
    logs = {"logs": {"cap": changed.pop("log_cap")}} if "log_cap" in changed else {}
    return {**first, **_command(job.command), **changed, **logs}


def job_to_yaml(job: Job) -> str:
    """A job as the text of a job file."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Its own class, because representers belong to classes."""

    def represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        # Left alone, PyYAML writes line breaks other than \n unquoted, and every reader folds them into blanks.
        style = '"' if set(text) & _OTHER_BREAKS else "|" if "\n" in text else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, represent_text)
    text: str = yaml.dump(job_to_dict(job), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100)
    return text


def _command(command: Command) -> dict[str, Any]:
    if command.kind == "program":
        return {"program": list(command.words)}
    arguments = {"args": command.words[1:]} if len(command.words) > 1 else {}
    return {command.kind: command.words[0], **arguments}
