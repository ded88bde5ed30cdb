"""The Job: the one model of what to run, whatever the cluster. Made from a file, from the command line or from Python.

    Job(script="train.py", args=["--lr", 0.1], nodes="1:3", procs=2, max_time="2h")

Every way leads through `__post_init__`, which turns what people write into what the model holds (by the `Form` in a
field's annotation, else by its type) and reports everything that is wrong at once; so
`msgspec.structs.replace(job, nodes="2:4")` is checked too. A job holds names of secrets, never values. Where a job
runs, and what became of it, is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from os import PathLike
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Union

import msgspec

from petctl.job.spec import values
from petctl.job.spec.command import KINDS, Command, command_from
from petctl.job.spec.folders import ALL, Folder, folders, folders_to_plain, outputs, outputs_to_plain
from petctl.job.spec.options import Options, convert_options, options_to_plain
from petctl.job.spec.problems import FieldError, Problem, unknown_field
from petctl.job.spec.quantities import Size, format_bytes, format_duration, parse_bytes, parse_duration, parse_size
from petctl.job.spec.resources import Resources, shared_memory_problems
from petctl.job.spec.retries import retry_on
from petctl.job.spec.roles import Role, role_problems, roles, roles_to_plain
from petctl.job.spec.shape import Checked, Form, struct_from
from petctl.job.spec.volumes import Volume, volumes, volumes_to_plain

LAUNCHERS = ("elastic", "torchrun", "mpi", "plain")
IN_PLACE = "none"  # for `code`: no snapshot
COMMAND_FIELDS = (*KINDS, "args")


def _number_or_text(value: object) -> int | str:
    text = str(value)
    return int(text) if text.isdecimal() else text


def _secret_or_none(value: object) -> str:
    return values.secret_name(value) if value != "" else ""


Line = Annotated[str, Form(values.single_line)]
Count = Annotated[int, Form(values.whole(0))]
Seconds = Annotated[float, Form(parse_duration, format_duration)]
SomeSeconds = Annotated[float, Form(values.above_zero(parse_duration), format_duration)]


class Rendezvous(Checked, frozen=True, kw_only=True):
    """How nodes are gathered into rounds and how their loss is noticed; all in seconds."""

    join_timeout: SomeSeconds = 600.0  # give up when fewer than the least nodes have joined for so long
    last_call: Seconds = 0.0  # with enough nodes joined, wait so long for more
    resize_interval: Seconds = 30.0  # arrivals nobody asked for are gathered for so long
    silence: SomeSeconds = 5.0  # a node not heard of for so long is lost
    fence_after: SomeSeconds = 60.0  # a node without a coordinator for so long stops its workers

    def conflicts(self) -> list[Problem]:
        shorter = self.fence_after < self.silence
        return [Problem(("fence_after",), f"must not be shorter than silence ({self.silence:g} s)")] * shorter


NodeResources = Annotated[Resources, Form(partial(struct_from, Resources), Resources.to_plain)]
Volumes = Annotated[list[Volume], Form(volumes, volumes_to_plain)]
AnyCommand = Annotated[Command, Form(command_from)]
SecretName = Annotated[str, Form(_secret_or_none)]
Roles = Annotated[list[Role], Form(roles, roles_to_plain)]
Modules = Annotated[list[str], Form(values.module_names)]
Environment = Annotated[dict[str, str], Form(values.text_mapping(values.ENVIRONMENT_NAMES, values.text))]
SecretNames = Annotated[dict[str, str], Form(values.text_mapping(values.ENVIRONMENT_NAMES, values.secret_name))]
Labels = Annotated[dict[str, str], Form(values.text_mapping(values.LABEL_NAMES, values.text))]
Retried = Annotated[list[str], Form(retry_on, lambda words: [_number_or_text(word) for word in words])]
OptionsByKind = Annotated[dict[str, Options], Form(convert_options, options_to_plain)]
Folders = Annotated[Union[str, dict[str, Folder]], Form(folders, folders_to_plain)]
Outputs = Annotated[dict[str, str], Form(outputs, outputs_to_plain)]
Bytes = Annotated[int, Form(values.above_zero(parse_bytes), format_bytes)]
Timing = Annotated[Rendezvous, Form(partial(struct_from, Rendezvous), Rendezvous.to_plain)]


class _FriendlyCall(msgspec.StructMeta):
    """Lets Job(script=..., args=...) say the command in the words of a job file."""

    def __call__(cls, **fields: Any) -> Any:
        forms = {name: fields.pop(name) for name in COMMAND_FIELDS if name in fields}
        unknown = [name for name in fields if name not in cls.__struct_fields__]
        problems = [unknown_field(name, FIELDS) for name in unknown]
        if any(value is not None for value in forms.values()):
            if fields.get("command") is not None:
                problems.append(Problem(("command",), f"a second command besides {next(iter(forms))!r}; keep one"))
            else:
                # Left for __post_init__, which reports its problems together with those of the other fields.
                fields["command"] = forms
        if problems:
            raise FieldError(problems)
        # None is how Python code says "not given".
        return super().__call__(**{name: value for name, value in fields.items() if value is not None})


class Job(Checked, frozen=True, kw_only=True, metaclass=_FriendlyCall):
    """What to run, on how many nodes, and how long to keep trying."""

    command: AnyCommand = None  # type: ignore[assignment]  # required; __post_init__ says so in words
    name: Annotated[str, Form(values.job_name)] = ""  # empty: derived from the command
    nodes: Annotated[Size, Form(parse_size, _number_or_text)] = Size(1, 1, 1)
    procs: Annotated[str, Form(values.procs, _number_or_text)] = "1"  # per node: a number, "cpu", "gpu" or "auto"
    resources: NodeResources = Resources()  # of each node
    volumes: Volumes = []  # that each node sees
    launcher: Annotated[str, Form(values.one_of(*LAUNCHERS))] = "elastic"
    processes: Count = 0  # under mpi: over all nodes; 0: `procs` on each
    mpi_options: list[str] = []  # more words for mpirun
    roles: Roles = []  # under plain: tasks that do different things
    python: Line = ""  # empty: the cluster's rule
    warm: bool = True  # Python workers are forked from a process that has made their imports
    preload: Modules = []  # modules to import there, beside those that are known
    env: Environment = {}
    secrets: SecretNames = {}  # environment name -> name of the secret
    prepare: str = ""  # shell line, once per node before its first workers
    restarts: Count = 3
    retry_on: Retried = []  # exit codes to restart from; none: all
    grace: Seconds = 30.0
    max_time: Seconds = 0.0  # 0: no limit
    stall_after: Seconds = 60.0  # seconds without a step, once steps are reported; 0: never
    priority: Annotated[int, Form(values.whole(-(2**31)))] = 0
    labels: Labels = {}
    experiment: Line = ""
    workspace: Line = ""
    cluster: Line = ""
    cwd: str = ""  # empty: the submitter's directory; with `code`, a directory inside it
    code: Line = ""  # what to take a snapshot of, and run from that; empty: the cluster's rule; "none": run in `cwd`
    options: OptionsByKind = {}  # what only one kind of cluster or file says, by kind
    image: Line = ""  # of the containers that its nodes run in
    image_credentials: SecretName = ""  # what opens its registry: user:password, or docker's config.json
    requirements: Line = ""  # a file of the code that says what to install for it; empty: nothing
    allow_secrets: list[str] = []  # patterns of files that only look like secrets
    folders: Folders = ALL  # mapped folders: "all" of the configuration's, "none", or these
    store: Line = ""  # where outputs and logs are sent; empty: as configured; "none": they stay in the job's directory
    outputs: Outputs = {}  # id -> location; empty: under the store
    listen: Annotated[str, Form(values.host)] = "127.0.0.1"
    log_cap: Bytes = 1 << 30  # bytes on disk per stream of a worker
    rendezvous: Timing = Rendezvous()

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            command: Command | Sequence[str] | str | None = None,
            script: str | PathLike[str] | None = None,
            module: str | None = None,
            program: Sequence[object] | str | None = None,
            shell: str | None = None,
            args: Sequence[object] | str | None = None,
            name: str | None = None,
            nodes: Size | str | int | None = None,
            procs: str | int | None = None,
            resources: Resources | Mapping[str, object] | None = None,
            volumes: Sequence[Volume | Mapping[str, Any]] | None = None,
            launcher: str | None = None,
            processes: int | None = None,
            mpi_options: Sequence[str] | str | None = None,
            roles: Sequence[Role | Mapping[str, Any]] | None = None,
            python: str | PathLike[str] | None = None,
            warm: bool | str | None = None,
            preload: Sequence[str] | str | None = None,
            env: Mapping[str, object] | None = None,
            secrets: Mapping[str, str] | None = None,
            prepare: str | None = None,
            restarts: int | None = None,
            retry_on: Sequence[str | int] | str | int | None = None,
            grace: float | str | None = None,
            max_time: float | str | None = None,
            stall_after: float | str | None = None,
            priority: int | None = None,
            labels: Mapping[str, object] | None = None,
            experiment: str | None = None,
            workspace: str | None = None,
            cluster: str | None = None,
            cwd: str | PathLike[str] | None = None,
            code: str | PathLike[str] | None = None,
            options: Mapping[str, Options | Mapping[str, object]] | None = None,
            image: str | None = None,
            image_credentials: str | None = None,
            requirements: str | PathLike[str] | None = None,
            allow_secrets: Sequence[str] | str | None = None,
            folders: str | Sequence[str] | Mapping[str, Any] | None = None,
            store: str | PathLike[str] | None = None,
            outputs: Sequence[str] | Mapping[str, str] | str | None = None,
            listen: str | None = None,
            log_cap: int | str | None = None,
            rendezvous: Rendezvous | Mapping[str, object] | None = None,
        ) -> None: ...

    @staticmethod
    def path_of(name: str) -> tuple[str, ...]:
        return () if name == "command" else (name,)  # its problems name script, args and so on themselves

    def conflicts(self) -> list[Problem]:
        both = sorted(set(self.env) & set(self.secrets))
        problems = [Problem(("secrets", n), "is also in env; keep one of them", at_name=True) for n in both]
        shared = shared_memory_problems(self.resources, self.volumes)
        return [*problems, *role_problems(self), *_mpi_problems(self), *shared]


class Prepared(NamedTuple):
    """A job as it will be submitted, and what has to be kept for it first."""

    job: Job
    secrets: Mapping[str, str] = MappingProxyType({})  # name -> value: they are nowhere else
    remarks: Sequence[str] = ()  # what was accepted and has no effect


FIELDS = tuple(name for name in Job.__struct_fields__ if name != "command") + COMMAND_FIELDS


def _mpi_problems(job: Job) -> list[Problem]:
    """What is said of mpirun although it does not run, or cannot be on so many nodes."""
    if job.launcher != "mpi":
        said = {"processes": "; use procs" if job.processes else "", "mpi_options": ""}
        wrongly = [name for name in said if getattr(job, name)]
        return [Problem((name,), f"is for launcher mpi, not {job.launcher}{said[name]}") for name in wrongly]
    own = {"-n", "-np", "--np", "-c", "--n", "-f", "-host", "--host", "-H", "-hostfile", "--hostfile", "-machinefile"}
    taken = [word for word in job.mpi_options if word in own]
    if taken:
        return [Problem(("mpi_options",), f"{taken[0]} is set by petctl; use nodes, procs or processes")]
    if 0 < job.processes < job.nodes.max:
        sentence = f"{job.nodes.max} nodes need at least {job.nodes.max} processes, but there are {job.processes}"
        return [Problem(("processes",), sentence)]
    return []
