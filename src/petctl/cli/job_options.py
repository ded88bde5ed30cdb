"""The words of run, submit and render -> Job.

petctl's own options end at the first word that is no option (behind a job file more of them may follow:
`option_order.py`); from there on every word is the command's own and arrives as it was typed. A `--` that separates
(before the command, or right behind a job file, script or module) is dropped; any other belongs to the command. What is
said on the command line wins over the job file.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Mapping, Sequence, TypeVar

import click

from petctl.cli.option_order import hint_at_options_behind, options_first, takes_value
from petctl.console.commands import output_option
from petctl.errors import UsageError

if TYPE_CHECKING:
    from petctl.job.spec import Command, Job, JobFile
    from petctl.job.spec.folders import Folder
    from petctl.job.spec.job import Prepared
    from petctl.job.spec.options import Options
    from petctl.job.spec.roles import Role
    from petctl.job.spec.volumes import Volume

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

CONTEXT = {"help_option_names": ["-h", "--help"], "allow_interspersed_args": False}
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.zst", ".zip")

_PLAIN_FIELDS = (
    *("nodes", "procs", "cluster", "name", "prepare", "restarts", "grace", "max_time", "priority", "experiment"),
    *("stall_after", "workspace", "python", "launcher", "listen", "cwd", "code", "image", "requirements"),
    *("processes", "mpi_options", "store"),
)

_CLUSTER = "petctl.cli.cluster"  # in the context of a help: the cluster that it is about
_COMMON = "Common"
_GROUPS = {  # names, value ("" of a flag), default, help
    _COMMON: [
        ("-m --module", "", "no", "COMMAND is a Python module, as in python -m."),
        ("--shell", "LINE", "COMMAND", "Run this shell command instead of COMMAND."),
        ("-e --env", "NAME[=VALUE]", "none", "Set NAME; without VALUE: as it is here."),
        ("--secret", "NAME=SECRET", "none", "Set NAME from a stored secret."),
        ("--set sets", "NAME=VALUE", "none", "Fill ${NAME} in the job file."),
        ("--name", "NAME", "after COMMAND", "Name of the job; its id starts with it."),
        ("--launcher", "KIND", "elastic", "Launcher: elastic, torchrun, mpi or plain."),
        ("--role roles", "NAME=COUNT[:ARGS]", "none", "Tasks of a role: ps=1, worker=4."),
        ("--mpi-options", "TEXT", "none", "With mpi: more options for mpirun, quoted as for a shell."),
        ("--label labels", "NAME=VALUE", "none", "Label for your own use."),
        ("--experiment", "NAME", "none", "Experiment of the job."),
        ("--workspace", "NAME", "none", "Workspace of the job."),
        ("-q --quiet", "", "no", "Only print errors."),
    ],
    "Size": [
        ("-n --nodes", "N", "1", "Nodes: 3, 1:3 (min:max) or 1:2:3 (min:initial:max)."),
        ("--procs", "N", "1", "Workers per node: a number, cpu, gpu or auto."),
        ("--processes", "N", "--procs on each node", "With mpi: processes over all nodes, instead of --procs."),
        ("--gpus", "N", "the cluster's", "GPUs per node."),
        ("--cpu", "N", "the cluster's", "CPUs per node: 4, 500m."),
        ("--memory", "SIZE", "the cluster's", "The most memory of a node: 16GiB."),
        ("--shm-size shm", "SIZE", "the cluster's", "Shared memory (/dev/shm) of a pod or container: 8GiB."),
    ],
    "Code and results": [
        ("--cwd", "DIR", "this directory", "Working directory; with --code, inside the snapshot."),
        ("--code", "WHERE", "your project", "Run from a snapshot of: a directory, file, archive, git+URL@REF."),
        ("--no-upload", "", "no", "Run in place, without a snapshot of the code."),
        ("--allow-secret allow_secrets", "FILES", "none", "Allow files that look like secrets."),
        ("--requirements", "FILE", "none", "Install this requirements file once per machine."),
        ("--prepare", "LINE", "none", "Run this once per node before its first workers."),
        ("--python", "PATH", "the one in use here, python3 elsewhere", "Python interpreter for scripts and modules."),
        ("--preload", "MODULE", "what earlier runs imported", "Import it before workers start."),
        ("--no-warm", "", "no", "Start every worker as a new process."),
        ("--folder folders", "NAME[=LOCATION[,MODE]]", "all", "Use only these mapped folders."),
        ("--no-folders", "", "no", "Use no mapped folders."),
        ("--store", "LOCATION", "as configured", "Upload outputs and logs to: s3://, az://, a path; none."),
        ("--out outs", "ID[=LOCATION]", "none", "Declare an output, $PETCTL_OUTPUT_<ID>."),
    ],
    "Failures": [
        ("--restarts", "N", "3", "Restart after at most N worker failures."),
        ("--retry-on", "WORDS", "every failure", "Restart only after these: 3,128-255,network."),
        ("--grace", "TIME", "30s", "Time from SIGTERM to SIGKILL: 30s, 2m."),
        ("--max-time", "TIME", "no limit", "End the job after: 90m, 12h. Exit code 124."),
        ("--stall-after", "TIME", "1m", "Restart if reported steps stop for: 5m; 0: never."),
    ],
    "Cluster": [
        ("-c --cluster", "NAME", "local", "Cluster to run on; this machine is called local."),
        ("-O --option kind_options", "NAME=VALUE", "none", "Option of the cluster's kind; -c NAME --help lists them."),
        ("--image", "IMAGE", "none", "Run in containers of IMAGE (podman, docker, pods); Python 3.9."),
        ("--no-container", "", "no", "Run without a container, even if the job file has an image."),
        ("--volume volumes", "CLAIM:/PATH[:ro]", "none", "Mount a volume claim, or /DIR:/PATH of the machine."),
        ("--priority", "N", "0", "Higher priority starts first."),
        ("--listen", "HOST", "127.0.0.1", "Listen on HOST, so that other machines can join."),
    ],
}
_NUMBERS = ("--processes", "--gpus", "--restarts", "--priority")
_REPEATED = (
    *("-e --env", "--secret", "--set sets", "--role roles", "--label labels", "--allow-secret allow_secrets"),
    *("--preload", "--folder folders", "--out outs", "--retry-on", "--volume volumes"),
    "-O --option kind_options",
)


class JobOption(click.Option):
    """An option of a job. The job file may say another default, so click is told of none."""

    def __init__(self, param_decls: Sequence[str], group: str, usual: str, **more: Any) -> None:
        super().__init__(param_decls, **more)
        self.group, self.usual = group, usual

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        record = super().get_help_record(ctx)
        return record and (record[0], f"{record[1]}  [default: {self.usual}]")


class JobCommand(click.Command):
    """A verb whose words are a job's: `run`, `submit`, `render` and sweeps."""

    own_group = _COMMON  # of the options that are not a job's

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        args = options_first(list(args), takes_value(self, ctx))
        if not ctx.resilient_parsing and {"-h", "--help"} & set(args):
            with suppress(click.UsageError):  # -c may stand behind --help, which ends the reading of options
                said, _, _ = self.make_parser(ctx).parse_args(args=list(args))
                ctx.meta[_CLUSTER] = said.get("cluster")
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {group: [] for group in (self.own_group, *_GROUPS)}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx) if isinstance(option, click.Option) else None
            if record:
                groups[option.group if isinstance(option, JobOption) else self.own_group].append(record)
        if ctx.meta.get(_CLUSTER):
            from petctl.cli.kind_options import option_records

            group, records = option_records(ctx.meta[_CLUSTER])
            groups[group] = records
        for group, records in groups.items():
            if not records:
                continue
            with formatter.section(group):
                formatter.write_dl(records)


def job_options(*outputs: str) -> Callable[[Decorated], Decorated]:
    """Adds all options that describe a job, and -o."""

    def decorate(function: Decorated) -> Decorated:
        function = output_option(*outputs)(function)
        for group, options in reversed(_GROUPS.items()):
            for names, value, usual, text in reversed(options):
                kind: dict[str, Any] = (
                    {"metavar": value, "multiple": names in _REPEATED} if value else {"is_flag": True}
                )
                if names in _NUMBERS:
                    kind["type"] = int
                option = click.option(*names.split(), cls=JobOption, group=group, usual=usual, help=text, **kind)
                function = option(function)
        return click.argument("words", metavar="COMMAND...", nargs=-1, type=click.UNPROCESSED)(function)

    return decorate


def build_job(options: Mapping[str, Any]) -> Job:
    """The job that the command line asks for."""
    return prepare_job(options).job


def prepare_job(options: Mapping[str, Any], reader: Callable[..., Prepared] | None = None) -> Prepared:
    """The same, with the values of secrets that a job file has in itself. `reader`: instead of `read_any`."""
    import msgspec

    from petctl.cli.job_file import read_any
    from petctl.job.spec import Job, JobFile
    from petctl.job.spec.job import Prepared

    _refuse_bytes(options)
    place, words = split_place(options["words"]) if options["no_upload"] else ("", options["words"])
    code, words = split_code(words)
    command = classify(words, options["module"], options["shell"])
    fields = _given_fields(options)
    if place:
        if "cwd" in fields:
            raise UsageError(f"the job's directory comes from {place!r} or from --cwd; keep one")
        fields["cwd"] = place
    if code:
        if "code" in fields:
            raise UsageError(f"the code comes from {code!r}; leave --code and --no-upload out")
        fields["code"] = code
    if not isinstance(command, JobFile):
        if options["sets"]:
            raise UsageError("--set fills ${NAME} in a job file, but none was given; use -e for the environment")
        if command.kind == "script" and not options["quiet"] and not code and not place:
            hint_at_options_behind(words)
        _tell_secrets(fields, options)
        fields |= _kind_options(options, fields.get("cluster", ""), {})
        return Prepared(Job(command=command, **fields))
    read = (reader or read_any)(command.path, _pairs("--set", options["sets"]))
    job = read.job
    for remark in () if options["quiet"] else read.remarks:
        click.echo(f"petctl: {command.path}: {remark}", err=True)
    if options["no_container"] and job.image and not options["quiet"]:
        click.echo(f"petctl: without a container: the image {job.image} is not used (--no-container)", err=True)
    fields |= _kind_options(options, fields.get("cluster", job.cluster), job.options)
    if "resources" in fields:
        fields["resources"] = {**msgspec.structs.asdict(job.resources), **fields["resources"]}
    if "volumes" in fields:
        from petctl.job.spec.volumes import merged_volumes

        fields["volumes"] = merged_volumes(job.volumes, fields["volumes"])
    for name in ("env", "secrets", "labels", "outputs"):
        if name in fields:
            fields[name] = {**getattr(job, name), **fields[name]}
    for name in ("preload", "allow_secrets"):
        if name in fields:
            fields[name] = [*getattr(job, name), *fields[name]]
    if isinstance(fields.get("folders"), dict) and isinstance(job.folders, dict):
        fields["folders"] = {**job.folders, **fields["folders"]}
    if command.words:
        fields["command"] = job.command.extended(command.words)
    _tell_secrets({"env": {**job.env, **fields.get("env", {})}}, options)
    job = msgspec.structs.replace(job, **fields)
    unused = set(read.job.secrets.values()) | {read.job.image_credentials}
    unused -= {*job.secrets.values(), job.image_credentials}
    return Prepared(job, {name: value for name, value in read.secrets.items() if name not in unused})


def _tell_secrets(fields: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """What is said in the environment is kept in the job's record, where whoever may see the job can read it."""
    if not fields.get("env") or options["quiet"]:
        return
    from petctl.bundle.secret_scan import secret_variables

    for name in secret_variables(fields["env"]):
        stored = name.lower().replace("_", "-")
        click.echo(
            f"petctl: {name} looks like a secret, but the job's record shows it; to hide it: petctl secret set "
            f"{stored}, then --secret {name}={stored} in place of -e",
            err=True,
        )


def split_place(words: Sequence[str]) -> tuple[str, list[str]]:
    """The directory that a job runs in where its code lies already, named in front of a command: here, or in an image
    or on nodes that this machine knows nothing of."""
    first, rest = words[0] if words else "", list(words[2:] if list(words[1:2]) == ["--"] else words[1:])
    if not rest or first.startswith("-") or "://" in first:
        return "", list(words)
    from shutil import which

    path, scripts = Path(first), (".py", ".sh")
    if os.sep in first or first in (".", ".."):
        is_place = path.is_dir() or (
            not path.exists() and not first.endswith(scripts) and rest[0].endswith(scripts)  # in an image, or on nodes
        )
    else:  # a program of an image has such a name too, so only a directory that is here counts
        is_place = path.is_dir() and rest[0].endswith(scripts) and which(first) is None
    return (first, rest) if is_place else ("", list(words))


def split_code(words: Sequence[str]) -> tuple[str, list[str]]:
    """Code that is named in front of a command: a directory, an archive, or something behind an address."""
    from urllib.parse import urlsplit

    first = words[0] if words else ""
    path = urlsplit(first).path if "://" in first else first
    far = "://" in first
    if (
        not far
        and not path.endswith(ARCHIVES)
        and not ((os.sep in path or path in (".", "..")) and Path(path).is_dir())
    ):
        return "", list(words)
    rest = list(words[2:] if list(words[1:2]) == ["--"] else words[1:])
    if far and not first.startswith("git+") and path.endswith(".py"):
        return first, [Path(path).name, *rest]
    if not rest:
        raise UsageError(f"{first} needs a command: petctl run {first} train.py")
    return first, rest


def classify(words: Sequence[str], module: bool, shell: str | None) -> Command | JobFile:
    """The command, without a `--` that only separates."""
    from petctl.job.spec import Command, JobFile, classify_command

    if shell is not None:
        if words:
            raise UsageError(f"give either --shell or the command {words[0]!r}, not both; quote the whole line")
        return classify_command([shell], shell=True)
    if not words:
        raise UsageError("nothing to run: give a script, a program or a job file, such as: petctl run train.py")
    command = classify_command(words, module=module)
    if isinstance(command, JobFile):
        return JobFile(command.path, command.words[1:]) if command.words[:1] == ["--"] else command
    if command.kind in ("script", "module") and command.words[1:2] == ["--"]:
        return Command(command.kind, [command.words[0], *command.words[2:]])
    return command


def _refuse_bytes(options: Mapping[str, Any]) -> None:
    """Words that are no text cannot travel to the nodes as they are; better now than there."""
    values = list(options.values()) + [os.environ.get(name, "") for name in options["env"]]
    for text in (text for value in values for text in (value if isinstance(value, tuple) else [value])):
        if isinstance(text, str) and not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                raise UsageError(f"{text!r} is not UTF-8 text, as a job's words must be") from None


def _given_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """The job's fields that were said, so that all others stay as the job file or the defaults have them."""
    from petctl.job.spec import IN_PLACE, Resources

    fields = {name: options[name] for name in _PLAIN_FIELDS if options[name] is not None}
    fields["env"] = _environment(options["env"])
    fields["secrets"] = _pairs("--secret", options["secret"])
    fields["labels"] = _pairs("--label", options["labels"])
    fields["preload"] = list(options["preload"])
    fields["retry_on"] = list(options["retry_on"])
    fields["resources"] = {name: options[name] for name in Resources.__struct_fields__ if options[name] is not None}
    fields["volumes"] = _volumes(options["volumes"])
    fields["roles"] = _roles(options["roles"])
    if fields["roles"]:
        fields.setdefault("launcher", "plain")  # the only one that has any
    fields["outputs"] = _outputs(options["outs"])
    fields["allow_secrets"] = list(options["allow_secrets"])
    if options["no_upload"]:
        if "code" in fields:
            raise UsageError("give either --code or --no-upload, not both")
        fields["code"] = IN_PLACE
    fields["folders"] = _folders(options["folders"], options["no_folders"])
    if options["no_container"]:
        if "image" in fields:
            raise UsageError("give either --image or --no-container, not both")
        fields["image"] = fields["image_credentials"] = ""
    if options["no_warm"]:
        fields["warm"] = False
    return {name: value for name, value in fields.items() if value not in ({}, [])}


def _roles(texts: Sequence[str]) -> list[Role]:
    from petctl.job.spec.roles import parse_role_option

    return [parse_role_option(text) for text in texts]


def _volumes(texts: Sequence[str]) -> list[Volume]:
    from petctl.job.spec.volumes import parse_volume_option

    return [parse_volume_option(text) for text in texts]


def _folders(texts: Sequence[str], none: bool) -> str | dict[str, Folder]:
    from petctl.job.spec.folders import NONE, parse_folder_option

    if none and texts:
        raise UsageError("give either --folder or --no-folders, not both")
    return NONE if none else dict(parse_folder_option(text) for text in texts)


def _kind_options(options: Mapping[str, Any], cluster: str, old: Mapping[str, Options]) -> dict[str, Any]:
    """The job's `options` with what -O says."""
    if not options["kind_options"]:
        return {}
    from petctl.cli.kind_options import merge_options, parse_options

    return {"options": merge_options(old, parse_options(options["kind_options"], cluster))}


def _pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} {text}: expected NAME=VALUE")
        pairs[name] = value
    return pairs


def _outputs(texts: Sequence[str]) -> dict[str, str]:
    """ID, or ID=LOCATION."""
    pairs = {}
    for text in texts:
        name, equals, location = text.partition("=")
        if not name or (equals and not location):
            raise UsageError(f"--out {text}: expected ID or ID=LOCATION")
        pairs[name] = location
    return pairs


def _environment(texts: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE, or NAME alone for the value it has here."""
    pairs = {}
    for text in texts:
        if "=" in text:
            pairs.update(_pairs("--env", [text]))
        elif text in os.environ:
            pairs[text] = os.environ[text]
        else:
            raise UsageError(f"--env {text}: the variable is not set here; set it, or give {text}=VALUE")
    return pairs
