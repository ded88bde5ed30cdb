"""Jobs out: the shortest mapping or YAML that `read.py` reads as the same job. Fields at their default are left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from petctl.job.spec.command import Command
from petctl.job.spec.folders import folders_to_plain, outputs_to_plain
from petctl.job.spec.job import Job, Rendezvous
from petctl.job.spec.options import options_to_plain
from petctl.job.spec.quantities import format_bytes, format_duration
from petctl.job.spec.resources import Resources
from petctl.job.spec.roles import roles_to_plain
from petctl.job.spec.volumes import volumes_to_plain

_OTHER_BREAKS = frozenset("\r\x85\u2028\u2029")

Writers = Mapping[str, Callable[[Any], Any]]


def job_to_dict(job: Job) -> dict[str, Any]:
    """A job as plain JSON types, in the shape of a job file."""
    changed = _changed(job, Job(command=job.command), _JOB)
    first = {"name": changed.pop("name")} if "name" in changed else {}
    return {**first, **_command(job.command), **changed}


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


def _changed(struct: msgspec.Struct, default: msgspec.Struct, writers: Writers) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    for name in struct.__struct_fields__:
        value = getattr(struct, name)
        if value != getattr(default, name):
            written = writers[name](value) if name in writers else value
            if name == "log_cap":
                changed["logs"] = {"cap": written}
            else:
                changed[name] = written
    return changed


def _command(command: Command) -> dict[str, Any]:
    if command.kind == "program":
        return {"program": list(command.words)}
    arguments = {"args": command.words[1:]} if len(command.words) > 1 else {}
    return {command.kind: command.words[0], **arguments}


def _rendezvous(timing: Rendezvous) -> dict[str, Any]:
    return _changed(timing, Rendezvous(), dict.fromkeys(Rendezvous.__struct_fields__, format_duration))


def _number_or_text(value: object) -> int | str:
    text = str(value)
    return int(text) if text.isdecimal() else text


_JOB: Writers = {
    "nodes": _number_or_text,
    "procs": _number_or_text,
    "resources": Resources.to_plain,
    "volumes": volumes_to_plain,
    "retry_on": lambda words: [_number_or_text(word) for word in words],
    "env": dict,
    "secrets": dict,
    "labels": dict,
    "options": options_to_plain,
    "folders": folders_to_plain,
    "outputs": outputs_to_plain,
    "roles": roles_to_plain,
    "grace": format_duration,
    "max_time": format_duration,
    "stall_after": format_duration,
    "log_cap": format_bytes,
    "rendezvous": _rendezvous,
}
