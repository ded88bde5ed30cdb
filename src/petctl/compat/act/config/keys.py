"""Every key of ACT's configuration, once: what may stand there, and which have no effect here, with the reason. A key
that is also a field of `Config` becomes that field, whose default is said there.

petctl's own keys stand among them: cluster, launcher, device, auto_init, restarts, retry_on, allow_secrets, and `mode`
of a folder. A reader's table is docs/act-fields.md. What the values come to is said in `config.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from petctl.compat.act.config.accounts import Hidden
from petctl.compat.act.config.documents import BASE
from petctl.job.spec import values
from petctl.job.spec.folders import folder_mode, folder_name
from petctl.job.spec.problems import FieldError, Problem, Problems, shown, wrong
from petctl.job.spec.retries import retry_on
from petctl.job.spec.shape import Shape, take

CODE = "code_path"
FOLDER = "_folder"
_SCRIPT = "aml_server.py"
STORAGE = ("blob", "file")
_TRUE, _FALSE = ("true", "yes", "on"), ("false", "no", "off")

_AZURE_ML = "only Azure ML reads that"
_DATASTORE = "petctl needs no datastores; it opens the account that azure_blob_config_file names"


class Idle:
    """A key that is checked and has no effect here, whatever it says; switches are told only when they are on."""

    def __init__(self, holds: Callable[[object], object], why: str) -> None:
        self.holds, self.why = holds, why

    def __call__(self, value: object) -> object:
        return self.holds(value)


def truth(value: object) -> bool:
    """Yes or no, in any of YAML's ways."""
    if isinstance(value, bool):
        return value
    word = value.lower() if isinstance(value, str) else ""
    if word in (*_TRUE, *_FALSE):
        return word in _TRUE
    raise wrong(f"expected true or false, got {shown(value)}")


def _false_only(why: str) -> Callable[[object], bool]:
    def convert(value: object) -> bool:
        if truth(value):
            raise wrong(why)
        return False

    return convert


def _entry_script(value: object) -> str:
    if value != _SCRIPT:
        raise wrong(
            "petctl's agent stands on the nodes in place of ACT's script, and no other can; leave it out, "
            "and do what yours does in compile.aml.sh or in the command"
        )
    return _SCRIPT


def _numbers(value: object) -> list[int]:
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        value = [value]
    if not value:
        raise wrong("expected numbers of GPUs, such as [8, 4, 16]; the first is where it starts")
    return values.every(value, values.whole(1))


def _env(value: object) -> dict[str, str | None]:
    said = _mapping(value)
    found: dict[str, str | None] = dict.fromkeys(name for name in said if said[name] is None)
    given = {name: item for name, item in said.items() if item is not None}
    return {**found, **values.text_mapping(values.ENVIRONMENT_NAMES, values.text)(given)}


def _mapping(value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise wrong(f"expected keys and values, got {shown(value)}")
    return {str(name): item for name, item in value.items()}


def _path(value: object) -> str:
    """A path in a container, in one way of writing it; / is all of the container."""
    said = values.single_line(value)
    path = said.removeprefix("./").strip("/")
    if not said or any(part in ("", ".", "..") for part in path.split("/") if path):
        raise wrong(f"expected a path in the container, such as path/to/data, got {shown(value)}")
    return path


def _entry(value: object) -> dict[str, Any]:
    """Where the code or a folder is: only its path, or more of it."""
    if isinstance(value, str):
        return {"path": _path(value)}
    return take(ENTRY, value, keep_none=True)


def _config_param(value: object) -> dict[str, Any]:
    found: dict[str, Any] = {}
    problems = Problems()
    for key, item in _mapping(value).items():
        with problems.at(key):
            name = key.removesuffix(FOLDER)
            if key != CODE and (name == key or not name):
                sentence = f"expected {CODE} or NAME{FOLDER}, such as data{FOLDER} for the folder data"
                raise FieldError([Problem((), sentence, at_name=True)])
            if key != CODE:
                folder_name(name)
            found[key] = None if item is None else _entry(item)
    problems.check()
    return found


def _aml_config(value: object) -> str | dict[str, Any]:
    return values.single_line(value) if isinstance(value, str) else _mapping(value)


def _password(value: object) -> Hidden:
    if not isinstance(value, str):
        raise wrong("expected text; put it in quotes")
    return Hidden(value)


ENTRY: Shape = {
    "azure_blob_config_file": values.single_line,
    "path": _path,
    "storage_type": values.one_of(*STORAGE),
    "file_share": values.single_line,
    "datastore_name": Idle(values.single_line, _DATASTORE),
    "blob_cache_timeout": Idle(values.text, "blobfuse is not used; nodes fetch folders and upload what changes"),
    "submit_with_url": Idle(truth, "nodes always get signed URLs, and never a key"),
    "mode": folder_mode,
}
DOCKER: Shape = {
    "image": values.single_line,
    "address": values.single_line,
    "username": values.single_line,
    "password": _password,
}
KEYS: Shape = {
    BASE: values.single_line,
    "aml_config": _aml_config,
    "azure_blob_config_file": values.single_line,
    "datastore_name": Idle(values.single_line, _DATASTORE),
    "config_param": _config_param,
    "use_custom_docker": truth,
    "docker": DOCKER,
    "compute_target": values.single_line,
    "platform": Idle(values.one_of("aml", "itp", "singularity"), _AZURE_ML),
    "aks_compute": Idle(truth, _AZURE_ML),
    "experiment_name": values.single_line,
    "use_cli_auth": Idle(truth, _AZURE_ML),
    "multi_process": truth,
    "gpu_per_node": values.whole(0),
    "process_count_per_node": values.whole(0),
    "num_gpu": values.whole(0),
    "elastic_num_gpu": _numbers,
    "env": _env,
    "zip_options": values.words,
    "preemption_allowed": truth,
    "interpreter_path": values.single_line,
    "sleep_if_fail": truth,
    "sleep_if_succeed": truth,
    "compile_args": values.text,
    "singularity_sla_tier": Idle(values.single_line, _AZURE_ML),
    "singularity_instance_type": Idle(values.single_line, _AZURE_ML),
    "aks_compute_global_dispatch": Idle(truth, _AZURE_ML),
    "aks_compute_global_dispatch_arg": Idle(_mapping, _AZURE_ML),
    "unique_gjd_cluster": Idle(values.text, _AZURE_ML),
    "is_ssh_scheduler": _false_only(
        "the scheduler of machines behind ssh belongs to a package that is not public; machines that petctl reaches "
        "are clusters: petctl cluster create, or clusters: in petctl.yaml"
    ),
    "with_log": truth,
    "entry_script": _entry_script,
    "inject_collection": Idle(values.text, "petctl keeps its own records of runs, and no database"),
    "cluster": values.single_line,
    "launcher": values.one_of("mpi", "elastic"),
    "device": values.one_of("gpu", "cpu"),
    "auto_init": truth,
    "restarts": values.whole(0),
    "retry_on": retry_on,
    "allow_secrets": values.words,
}
