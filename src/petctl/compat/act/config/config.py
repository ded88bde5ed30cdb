"""A configuration of ACT's, aux_data/aml/NAME.yaml, as a value: which cluster, experiment, folders, GPUs, environment.

    find_config()            AML_CONFIG_PATH, else aux_data/aml/aml.yaml
    find_config("c1")        aux_data/aml/c1.yaml; where there is none, petctl's cluster c1 with the default file

Paths in it are relative to the current directory, as ACT's are, which is the project. What each key may hold is in
`keys.py`, and what comes of it in `build_config.py`; nothing is started or asked here, and no secret is in a repr.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import field

from petctl.clusters.base import how_to_get_cluster
from petctl.compat.act.config.accounts import Account, Hidden
from petctl.compat.act.config.documents import BASE, over, user_path, with_bases
from petctl.compat.act.config.keys import KEYS
from petctl.config.settings import cluster_settings, resource_settings
from petctl.errors import UsageError
from petctl.home import petctl_home
from petctl.job.spec.shape import take
from petctl.kinds import DEFAULT, is_kind

FOLDER_OF_FILES = Path("aux_data", "aml")
DEFAULT_FILE = FOLDER_OF_FILES / "aml.yaml"
VARIABLE = "AML_CONFIG_PATH"
BEGIN = "begin with two lines in it, such as\n  experiment_name: mine\n  gpu_per_node: 1"


class BlobFolder(NamedTuple):
    """A path in a storage account."""

    location: str  # az://ACCOUNT/CONTAINER/PATH, or https://ACCOUNT.file.core.windows.net/SHARE/PATH
    account: Account
    mode: str = "rw"


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """What a configuration says, with ACT's defaults where it says nothing."""

    name: str = "aml"  # of the file; a link's is that of what it leads to
    file: Path | None = None
    root: Path = field(default_factory=Path.cwd)  # the project: aux_data lies in it
    cluster: str = DEFAULT  # petctl's, that runs go to
    experiment: str = ""
    code_path: BlobFolder | None = None
    folders: dict[str, BlobFolder] = field(default_factory=dict)
    multi_process: bool = True
    gpu_per_node: int = 4
    process_count_per_node: int = 0  # 0: as many as GPUs
    num_gpu: int | None = None
    elastic_num_gpu: list[int] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    image: str = ""
    image_user: str = ""
    image_password: Hidden = Hidden()
    exclude: list[str] = field(default_factory=list)  # patterns as in .gitignore, from zip_options
    sleep_if_fail: bool = False
    sleep_if_succeed: bool = False
    compile_args: str = ""
    interpreter_path: str = "python"
    preemption_allowed: bool = False
    auto_init: bool = False
    launcher: str = "mpi"
    device: str = "gpu"  # cpu: the cluster is asked for no GPUs, the numbers stay
    with_log: bool = True
    restarts: int = 0
    retry_on: list[str] = field(default_factory=list)
    allow_secrets: list[str] = field(default_factory=list)
    workspace: dict[str, str] = field(default_factory=dict)  # what aml_config says
    remarks: list[str] = field(default_factory=list)  # a sentence for what has no effect here

    @property
    def accounts(self) -> list[Account]:
        """Those of all its places, each once: for `opened`."""
        places = [*self.folders.values(), *([self.code_path] if self.code_path else [])]
        return list(dict.fromkeys(place.account for place in places))

    @property
    def code_key(self) -> str:
        """Whose pinned code it runs: configurations with one code_path have one, as they had one zip."""
        return self.code_path.location if self.code_path else str(self.file.resolve()) if self.file else self.name


def find_config(
    cluster: str | None = None,
    overrides: Mapping[str, object] | None = None,
    required: bool = True,
    named_by: str = "-c",
) -> Config:
    """The configuration of that name, or the default one. `required`: there must be a file, or a cluster's name.
    `named_by`: the flag or argument that names it, for errors."""
    own = Path.cwd() / FOLDER_OF_FILES / f"{cluster}.yaml" if cluster else None
    if own is not None and os.path.isfile(own):  # noqa: PTH113  a name may be too long for pathlib
        return _config(own, None, overrides)
    default = default_file()
    if cluster:
        if not is_cluster(cluster):
            raise UsageError(
                f"{named_by} {cluster}: there is no file {own}, and petctl knows no cluster {cluster!r}: write the "
                f"file, or name another; {how_to_get_cluster(cluster)}"
            )
        return _config(default, cluster, overrides)
    if default is None and required and not overrides:
        raise UsageError(f"there is no configuration: {Path.cwd() / DEFAULT_FILE} does not exist; {BEGIN}")
    return _config(default, None, overrides)


def is_cluster(name: str) -> bool:
    """Whether petctl knows a cluster of this name."""
    return kind_of(name) != ""


def kind_of(name: str) -> str:
    """What kind of cluster it is; nothing where there is none of this name."""
    kind = str((cluster_settings(name) or resource_settings(petctl_home(), name)).get("kind", name))
    return kind if is_kind(kind) else ""


def default_file() -> Path | None:
    """The file that is meant where nobody names one."""
    said = os.environ.get(VARIABLE)
    if said:
        path = user_path(said).absolute()
        if not os.path.isfile(path):  # noqa: PTH113  the same
            raise UsageError(f"{VARIABLE} is {said}, which does not exist; correct it, or unset it")
        return path
    path = Path.cwd() / DEFAULT_FILE
    return path if path.is_file() else None


def _config(file: Path | None, cluster: str | None, overrides: Mapping[str, object] | None) -> Config:
    from petctl.compat.act.config.build_config import Making  # which makes what is above

    said = with_bases(file, KEYS) if file else {}
    if overrides:
        said = over(said, take({name: key for name, key in KEYS.items() if name != BASE}, overrides, keep_none=True))
    said = {name: value for name, value in said.items() if value is not None}
    name = cluster or (file.resolve().stem if file else DEFAULT_FILE.stem)
    return Making(said, file, name).config(cluster)
