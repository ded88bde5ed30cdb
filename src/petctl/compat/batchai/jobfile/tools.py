"""The nine tool blocks of a job file: which launcher starts what, how often, and how its files of output are named.

    chainer horovod customMpi cntk    mpi: processCount ranks over all nodes
    pyTorch                           mpi for that backend, else petctl's own launcher: processCount ranks
    caffe                             mpi, or one plain process
    caffe2                            plain: one process on each node
    tensorFlow                        plain, with the roles worker and ps; worker 0 is the master
    customToolkit                     plain, on the first node only

Command lines are shell lines: variables and quotes work as they were written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from petctl.job.spec.problems import wrong
from petctl.job.spec.roles import Role

Settings = Mapping[str, Any]

MERGED, BY_RANK, BY_ROLE = "merged", "rank", "role"
PYTHON = '"$PETCTL_PYTHON"'  # the node says which one that is: --python, or as for any job


class Run(NamedTuple):
    """What is started for a tool."""

    line: str
    launcher: str
    processes: int = 0  # under mpi, over all nodes; 0: one on each
    procs: int = 1  # on each node
    roles: tuple[Role, ...] = ()
    files: str = MERGED
    backend: str = ""
    remark: str = ""


def run_of(tool: str, settings: Settings, nodes: int) -> Run:
    """For one block, named as in the file; FieldError where its fields do not fit together."""
    return _TOOLS[tool](settings, nodes)


def tool_type(tool: str) -> str:
    """As `toolType` has it: chainerSettings -> chainer, customMpiSettings -> custommpi."""
    return _TYPES.get(tool) or tool.removesuffix("Settings").lower()


def script_of(settings: Settings) -> str:
    """What a job may be named after."""
    return str(settings.get("pythonScriptFilePath") or "")


def quoted(path: str) -> str:
    """A path as one word of a shell line, its variables alive."""
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"').replace("`", "\\`") + '"'


def _python(settings: Settings, arguments: str = "commandLineArgs") -> str:
    interpreter = settings.get("pythonInterpreterPath")
    words = [quoted(interpreter) if interpreter else PYTHON, "-u", quoted(script_of(settings))]
    return _joined("exec", *words, settings.get(arguments))


def _joined(*words: str | None) -> str:
    return " ".join(word for word in words if word)


def _mpi(line: str, settings: Settings) -> Run:
    return Run(line, "mpi", processes=settings.get("processCount", 0))


def _mpi_python(settings: Settings, nodes: int) -> Run:
    return _mpi(_python(settings), settings)


def _custom_mpi(settings: Settings, nodes: int) -> Run:
    return _mpi(settings["commandLine"], settings)


def _cntk(settings: Settings, nodes: int) -> Run:
    script, config = settings.get("pythonScriptFilePath"), settings.get("configFilePath")
    language = settings.get("languageType") or ("Python" if script else "BrainScript")
    if language == "Python":
        if not script:
            raise wrong("is missing: languageType Python needs it", "pythonScriptFilePath")
        if config:
            raise wrong("is for languageType BrainScript; leave it out", "configFilePath")
        return _mpi_python(settings, nodes)
    if not config:
        raise wrong("is missing: languageType BrainScript needs it", "configFilePath")
    for name in ("pythonScriptFilePath", "pythonInterpreterPath"):
        if settings.get(name):
            raise wrong("is for languageType Python; leave it out", name)
    return _mpi(_joined(f"exec cntk configFile={quoted(config)}", settings.get("commandLineArgs")), settings)


def _caffe(settings: Settings, nodes: int) -> Run:
    script, config = settings.get("pythonScriptFilePath"), settings.get("configFilePath")
    if bool(script) == bool(config):
        raise wrong("exactly one of configFilePath and pythonScriptFilePath is needed")
    if config and settings.get("pythonInterpreterPath"):
        raise wrong("is for pythonScriptFilePath; leave it out", "pythonInterpreterPath")
    solver = f"exec caffe train --solver={quoted(config or '')}"
    line = _python(settings) if script else _joined(solver, settings.get("commandLineArgs"))
    if settings.get("processCount", nodes) == nodes == 1:
        return Run(line, "plain")
    return _mpi(line, settings)


def _caffe2(settings: Settings, nodes: int) -> Run:
    return Run(_python(settings), "plain", files=BY_RANK)


def _pytorch(settings: Settings, nodes: int) -> Run:
    backend = settings.get("communicationBackend", "Gloo").lower()
    line = _python(settings)
    if backend == "mpi":  # each rank learns its number from mpirun
        run = _mpi(f'export AZ_BATCHAI_TASK_INDEX="$RANK"; {line}', settings)
        return run._replace(backend=backend)
    count = settings.get("processCount", nodes)
    if count % nodes:
        raise wrong(
            f"{count} processes cannot be divided evenly over {nodes} nodes, which the backend {backend} needs; "
            f"use a multiple of {nodes}",
            "processCount",
        )
    remark = "communicationBackend TCP: PyTorch has had no such backend since 1.0; Gloo does the same"
    return Run(
        line,
        "elastic",
        procs=count // nodes,
        files=BY_RANK,
        backend=backend,
        remark=remark if backend == "tcp" else "",
    )


def _tensorflow(settings: Settings, nodes: int) -> Run:
    master = _python(settings, "masterCommandLineArgs")
    names = ("workerCommandLineArgs", "parameterServerCommandLineArgs", "workerCount", "parameterServerCount")
    if nodes == 1 and not any(settings.get(name) for name in names):
        return Run(master, "plain", roles=(_role("worker", 1, master),), files=BY_ROLE)
    workers = settings.get("workerCount", nodes)
    servers = settings.get("parameterServerCount", 1 if settings.get("parameterServerCommandLineArgs") else 0)
    if servers > nodes:
        raise wrong(f"more than the {nodes} nodes of the job", "parameterServerCount")
    if max(workers, servers) < nodes:
        raise wrong(f"with {workers} workers, some of {nodes} nodes have nothing to do; lower nodeCount", "workerCount")
    worker = _python(settings, "workerCommandLineArgs")
    both = f'if [ "$AZ_BATCHAI_TASK_INDEX" = 0 ]; then {master}; else {worker}; fi'
    roles = [_role("worker", workers, both if workers > 1 else master)]
    if servers:
        roles.append(_role("ps", servers, _python(settings, "parameterServerCommandLineArgs"), serves=True))
    return Run(roles[0].words[0], "plain", roles=tuple(roles), files=BY_ROLE)


def _role(name: str, count: int, line: str, serves: bool = False) -> Role:
    return Role(name=name, count=count, words=[line], kind="shell", serves=serves)


def _custom_toolkit(settings: Settings, nodes: int) -> Run:
    return Run(f'[ "$GROUP_RANK" = 0 ] || exit 0; {settings["commandLine"]}', "plain")


_TOOLS: dict[str, Callable[[Settings, int], Run]] = {
    "caffe2Settings": _caffe2,
    "caffeSettings": _caffe,
    "chainerSettings": _mpi_python,
    "cntkSettings": _cntk,
    "customMpiSettings": _custom_mpi,
    "customToolkitSettings": _custom_toolkit,
    "horovodSettings": _mpi_python,
    "pyTorchSettings": _pytorch,
    "tensorFlowSettings": _tensorflow,
}
_TYPES = {"customToolkitSettings": "custom"}
