"""Configurations of ACT's: which file, which cluster, and every key that may stand in one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from petctl.clusters.base import find_cluster
from petctl.compat.act.config.accounts import KEYS as ACCOUNT_KEYS
from petctl.compat.act.config.config import Config, find_config
from petctl.compat.act.config.keys import DOCKER, ENTRY, KEYS
from petctl.errors import UsageError

ACCOUNT = "account_name: vig\naccount_key: a2V5\nsas_token: ?sv=1&sig=x\ncontainer_name: box\n"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one account, and no word of the user's configuration."""
    monkeypatch.delenv("AML_CONFIG_PATH", raising=False)
    monkeypatch.setenv("PETCTL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    root = tmp_path / "project"
    (root / "aux_data" / "aml").mkdir(parents=True)
    (root / "aux_data" / "configs").mkdir()
    (root / "aux_data" / "configs" / "vig.yaml").write_text(ACCOUNT)
    monkeypatch.chdir(root)
    return root


def write(text: str, name: str = "aml") -> Path:
    path = Path("aux_data", "aml", f"{name}.yaml")
    path.write_text(text)
    return path


def config(text: str, **overrides: Any) -> Config:
    write(text)
    return find_config(overrides=overrides)


def refused(text: str, **overrides: Any) -> str:
    with pytest.raises(UsageError) as error:
        config(text, **overrides)
    return str(error.value)


FOLDERS = """
config_param:
  code_path: {azure_blob_config_file: ./aux_data/configs/vig.yaml, path: path/to/code.zip}
  data_folder: {azure_blob_config_file: ./aux_data/configs/vig.yaml, path: path/to/data}
  output_folder: {azure_blob_config_file: ./aux_data/configs/vig.yaml, path: path/to/output, mode: sync}
"""


# -- which file, which cluster -----------------------------------------------------------------------------------------


def test_without_a_file_it_says_how_to_begin(project: Path) -> None:
    with pytest.raises(UsageError, match=r"aux_data/aml/aml.yaml does not exist; begin with"):
        find_config()
    assert find_config(required=False).gpu_per_node == 4


def test_the_default_file_and_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    write("experiment_name: first\n")
    write("experiment_name: second\n", "other")
    assert (find_config().name, find_config().experiment) == ("aml", "first")
    monkeypatch.setenv("AML_CONFIG_PATH", "./aux_data/aml/other.yaml")
    assert (find_config().name, find_config().experiment) == ("other", "second")
    assert find_config("aml").experiment == "first"
    monkeypatch.setenv("AML_CONFIG_PATH", "nowhere.yaml")
    with pytest.raises(UsageError, match=r"AML_CONFIG_PATH is nowhere.yaml, which does not exist"):
        find_config()


def test_a_link_has_the_name_of_what_it_leads_to() -> None:
    write("experiment_name: e\n", "eu")
    Path("aux_data/aml/aml.yaml").symlink_to("eu.yaml")
    assert find_config().name == "eu"


def test_a_cluster_of_petctl_without_a_file_of_its_own(project: Path) -> None:
    (project / "petctl.yaml").write_text("clusters: {lab: {kind: kubernetes}}\n")
    write("experiment_name: e\ngpu_per_node: 2\n")
    found = find_config("lab")
    assert (found.name, found.cluster, found.experiment, found.gpu_per_node) == ("lab", "lab", "e", 2)
    assert found.code_key == find_config().code_key
    assert find_config("local").cluster == "local"
    with pytest.raises(UsageError, match=r"-c nolab: there is no file .*nolab.yaml, and petctl knows no cluster") as no:
        find_config("nolab")
    assert str(no.value).endswith("create one on this machine: petctl cluster create nolab")


def test_no_cluster_of_this_machine_is_advised_in_place_of_a_cloud(tmp_path: Path) -> None:
    """petctl's own commands say the same."""
    for said in (lambda: find_config("aws"), lambda: config("cluster: aws\n"), lambda: find_cluster("aws", tmp_path)):
        with pytest.raises(UsageError, match=r"petctl has no aws clusters; use a Kubernetes .* \(-c k8s\)$") as refusal:
            said()
        assert "cluster create" not in str(refusal.value)


def test_which_cluster_runs_go_to(project: Path) -> None:
    (project / "petctl.yaml").write_text("clusters: {lab: {kind: kubernetes}, c1: {kind: local}}\n")
    assert config("cluster: lab\ncompute_target: c1\n").cluster == "lab"
    assert config("compute_target: c1\n").cluster == "c1"
    write("experiment_name: e\n", "c1")
    assert find_config("c1").cluster == "c1"
    found = config("compute_target: NC24RSV3\n")
    assert found.cluster == "local"
    assert found.remarks == [
        "compute_target NC24RSV3 is not a cluster that petctl knows: runs go to local; to choose another, write "
        "cluster: NAME"
    ]
    assert "cluster: petctl knows no cluster 'nolab'" in refused("cluster: nolab\n")


# -- bases and overrides -----------------------------------------------------------------------------------------------


def test_a_base_is_relative_recursive_and_overridden_deep_down(project: Path) -> None:
    (project / "shared").mkdir()
    (project / "shared" / "root.yaml").write_text("env: {A: 1, B: 2}\ngpu_per_node: 8\nmulti_process: false\n")
    write("_base_: ../../shared/root.yaml\nenv: {B: 3, C: 4}\ngpu_per_node: null\n" + FOLDERS, "middle")
    found = config("_base_: middle.yaml\nenv: {C: null}\nconfig_param: {output_folder: null, data_folder: {path: new}}")
    assert found.env == {"A": "1", "B": "3"}
    assert (found.gpu_per_node, found.multi_process) == (4, False)
    assert {name: place.location for name, place in found.folders.items()} == {"data": "az://vig/box/new"}


def test_bases_that_go_round_or_are_not_there() -> None:
    write("_base_: aml.yaml\n", "other")
    assert "_base_ forms a cycle" in refused("_base_: other.yaml\n")
    assert "there is no file" in refused("_base_: none.yaml\n")


def test_overrides_win_and_are_checked() -> None:
    found = config("env: {A: 1, B: 2}\ngpu_per_node: 8\n", env={"A": 5}, multi_process=False, cluster="local")
    assert (found.env, found.gpu_per_node, found.multi_process) == ({"A": "5", "B": "2"}, 8, False)
    assert "gpu_per_nod: unknown field; did you mean 'gpu_per_node'?" in refused("", gpu_per_nod=3)
    assert "gpu_per_node: expected a whole number" in refused("", gpu_per_node="many")
    assert "_base_: unknown field" in refused("", _base_="other.yaml")


# -- keys --------------------------------------------------------------------------------------------------------------


def test_an_empty_file_means_the_defaults() -> None:
    found = config("")
    assert (found.multi_process, found.gpu_per_node, found.launcher, found.device) == (True, 4, "mpi", "gpu")
    assert (found.num_gpu, found.process_count_per_node, found.elastic_num_gpu) == (None, 0, [])
    assert (found.cluster, found.image, found.env, found.folders, found.code_path) == ("local", "", {}, {}, None)
    assert (found.with_log, found.auto_init, found.restarts, found.remarks) == (True, False, 0, [])
    assert found.experiment  # the user's name


def test_a_wrong_key_is_told_with_its_place_and_the_nearest() -> None:
    said = refused("experiment_nam: x\nmulti_process: perhaps\nenv: [a]\ndocker: {imag: x}\n")
    assert said.splitlines() == [
        f"{Path.cwd()}/aux_data/aml/aml.yaml:1:1: experiment_nam: unknown field; did you mean 'experiment_name'?",
        f"{Path.cwd()}/aux_data/aml/aml.yaml:2:16: multi_process: expected true or false, got 'perhaps'",
        f"{Path.cwd()}/aux_data/aml/aml.yaml:3:6: env: expected keys and values, got a list",
        f"{Path.cwd()}/aux_data/aml/aml.yaml:4:10: docker.imag: unknown field; did you mean 'image'?",
    ]
    assert "unknown field; add _base_" in refused("a: &a {b: 1}\n<<: *a\n")
    assert "not YAML" in refused("a: [\n")
    assert "expected keys and values" in refused("- a\n")


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("experiment_name: jianfw", "experiment", "jianfw"),
        ("multi_process: False", "multi_process", False),
        ("multi_process: yes", "multi_process", True),
        ("gpu_per_node: 8", "gpu_per_node", 8),
        ("process_count_per_node: 2", "process_count_per_node", 2),
        ("num_gpu: 16", "num_gpu", 16),
        ("num_gpu: 4\nelastic_num_gpu: [8, 4]", "num_gpu", 4),
        ("elastic_num_gpu: [8, 4, 16]", "elastic_num_gpu", [8, 4, 16]),
        ("elastic_num_gpu: [8, 4, 16]", "num_gpu", 8),
        ("elastic_num_gpu: 8", "elastic_num_gpu", [8]),
        (
            "env: {NCCL_IB_DISABLE: '0', LR: 0.10, ON: true}",
            "env",
            {"NCCL_IB_DISABLE": "0", "LR": "0.10", "ON": "true"},
        ),
        ("zip_options: [-x, '\\*src/CMC/\\*']", "exclude", ["**/*src/CMC/"]),
        ("preemption_allowed: true", "preemption_allowed", True),
        ("interpreter_path: /opt/python", "interpreter_path", "/opt/python"),
        ("sleep_if_fail: true", "sleep_if_fail", True),
        ("sleep_if_succeed: true", "sleep_if_succeed", True),
        ("compile_args: '--fast 1'", "compile_args", "--fast 1"),
        ("with_log: false", "with_log", False),
        ("launcher: elastic", "launcher", "elastic"),
        ("device: cpu", "device", "cpu"),
        ("auto_init: true", "auto_init", True),
        ("restarts: 3", "restarts", 3),
        ("retry_on: [3, signals]", "retry_on", ["3", "signals"]),
        ("allow_secrets: ['*.pem']", "allow_secrets", ["*.pem"]),
        ("docker: {image: amsword/setup:py36pt16}", "image", "amsword/setup:py36pt16"),
        ("use_custom_docker: true\ndocker: {image: a/b}", "image", "a/b"),
        ("docker: {image: a/b, address: my.azurecr.io}", "image", "my.azurecr.io/a/b"),
        ("docker: {image: my.azurecr.io/a/b, address: my.azurecr.io}", "image", "my.azurecr.io/a/b"),
        ("is_ssh_scheduler: false\nentry_script: aml_server.py", "remarks", []),
        ("use_cli_auth: false\naks_compute: false\ndatastore_name: null", "remarks", []),
    ],
)
def test_honoured(text: str, field: str, value: object) -> None:
    assert getattr(config(text), field) == value


@pytest.mark.parametrize(
    ("text", "remark"),
    [
        ("use_cli_auth: True", "use_cli_auth has no effect: only Azure ML reads that"),
        ("platform: itp", "platform has no effect: only Azure ML reads that"),
        ("aks_compute: true", "aks_compute has no effect: only Azure ML reads that"),
        (
            "singularity_sla_tier: Premium\nsingularity_instance_type: x",
            "singularity_sla_tier, singularity_instance_type have no effect: only Azure ML reads that",
        ),
        (
            "aks_compute_global_dispatch: true\naks_compute_global_dispatch_arg: {vm_size: x}\nunique_gjd_cluster: u",
            "aks_compute_global_dispatch, aks_compute_global_dispatch_arg, unique_gjd_cluster have no effect: "
            "only Azure ML reads that",
        ),
        (
            "datastore_name: d",
            "datastore_name has no effect: petctl needs no datastores; it opens the account that "
            "azure_blob_config_file names",
        ),
        (
            "inject_collection: c",
            "inject_collection has no effect: petctl keeps its own records of runs, and no database",
        ),
        (
            "use_custom_docker: false\ndocker: {image: a/b}",
            "docker.image a/b is not used, since use_custom_docker is false",
        ),
        ("zip_options: [-9, -q]", "zip_options -9 -q: zip is not used; only -x has an effect here"),
        ("aml_config: none.json", "aml_config: there is no file none.json; nothing here needs it"),
        ("aml_config: {subscription_id: s}", "aml_config has no resource_group, workspace_name; nothing here needs it"),
    ],
)
def test_remarked(text: str, remark: str) -> None:
    assert config(text).remarks == [remark]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("is_ssh_scheduler: true", "is_ssh_scheduler: the scheduler of machines behind ssh"),
        ("entry_script: my_server.py", "entry_script: petctl's agent stands on the nodes in place of ACT's script"),
        ("platform: sagemaker", "platform: expected aml or itp or singularity"),
        ("launcher: torchrun", "launcher: expected mpi or elastic"),
        ("device: tpu", "device: expected gpu or cpu"),
        ("gpu_per_node: -1", "gpu_per_node: expected a whole number of 0 or more"),
        ("elastic_num_gpu: []", "elastic_num_gpu: expected numbers of GPUs"),
        ("use_custom_docker: true", "docker: image is missing"),
        ("docker: {image: a, username: u}", "docker: a registry needs username and password"),
        ("zip_options: [-i, '*.py']", "zip_options: -i says what to take"),
        ("zip_options: [-x, '*']", "zip_options: -x * leaves no files"),
        ("zip_options: [-x@list]", "names a file of patterns"),
        ("retry_on: [nonsense]", "retry_on[0]: expected exit codes"),
        ("config_param: {data: x}", "config_param.data: expected code_path or NAME_folder"),
        ("config_param: {data_folder: x}", "config_param.data_folder: azure_blob_config_file is missing"),
        (
            "config_param: {data_folder: {path: ../x}}",
            "config_param.data_folder.path: expected a path in the container",
        ),
        ("config_param: {data_folder: ''}", "config_param.data_folder: expected a path in the container"),
        ("config_param: {data_folder: {mode: w}}", "config_param.data_folder.mode: expected ro or rw or sync"),
        ("config_param: {data_folder: {storage: blob}}", "storage: unknown field; did you mean 'storage_type'?"),
    ],
)
def test_refused(text: str, sentence: str) -> None:
    assert sentence in refused(text)


def test_every_key_of_the_table_has_a_test() -> None:
    """This file names each of them."""
    text = Path(__file__).read_text()
    assert [key for key in KEYS if f"{key}:" not in text] == []


def test_every_key_is_in_the_documentation() -> None:
    words = Path(__file__).parents[3].joinpath("docs", "act-fields.md").read_text()
    told = {word for quoted in words.split("`")[1::2] for word in re.split(r"[^\w]+", quoted)}
    assert {*KEYS, *ENTRY, *DOCKER, *ACCOUNT_KEYS} - told == set()


def test_the_workspace_is_kept(project: Path) -> None:
    said = {"subscription_id": "s", "resource_group": "r", "workspace_name": "w"}
    (project / "aux_data" / "aml" / "config.json").write_text(json.dumps({**said, "Scope": "x"}))
    assert config("aml_config: aux_data/aml/config.json\n").workspace == said
    assert config("aml_config: {subscription_id: s, resource_group: r, workspace_name: w}\n").workspace == said
    (project / "aux_data" / "aml" / "config.json").write_text("{")
    assert "config.json:1:" in refused("aml_config: aux_data/aml/config.json\n")


# -- places ------------------------------------------------------------------------------------------------------------


def test_places() -> None:
    found = config(FOLDERS)
    assert found.code_path is not None
    assert found.code_path.location == "az://vig/box/path/to/code.zip" == found.code_key
    assert [(name, place.location, place.mode) for name, place in found.folders.items()] == [
        ("data", "az://vig/box/path/to/data", "rw"),
        ("output", "az://vig/box/path/to/output", "sync"),
    ]
    assert [account.name for account in found.accounts] == ["vig"]


def test_the_legacy_account_opens_what_names_none() -> None:
    found = config("azure_blob_config_file: aux_data/configs/vig.yaml\nconfig_param: {data_folder: /my/data/}\n")
    assert found.folders["data"].location == "az://vig/box/my/data"
    found = config("azure_blob_config_file: aux_data/configs/vig.yaml\nconfig_param: {data_folder: /}\n")
    assert found.folders["data"].location == "az://vig/box"


def test_options_of_an_entry_that_have_no_effect() -> None:
    entry = "path: p, azure_blob_config_file: aux_data/configs/vig.yaml, storage_type: blob"
    said = (
        f"config_param: {{data_folder: {{{entry}, datastore_name: d, blob_cache_timeout: 5, submit_with_url: true}}}}"
    )
    assert config(said).remarks == [
        "config_param.data_folder.datastore_name has no effect: petctl needs no datastores; it opens the account that "
        "azure_blob_config_file names",
        "config_param.data_folder.blob_cache_timeout has no effect: blobfuse is not used; nodes fetch folders "
        "and upload what changes",
        "config_param.data_folder.submit_with_url has no effect: nodes always get signed URLs, and never a key",
    ]


def test_a_file_share_needs_a_directory_of_this_machine(project: Path) -> None:
    entry = "path: p, azure_blob_config_file: aux_data/configs/vig.yaml"
    text = f"config_param: {{data_folder: {{{entry}, storage_type: file, file_share: s}}}}"
    said = refused(text)
    assert "config_param.data_folder: https://vig.file.core.windows.net/s/p is a file share" in said
    assert "petctl.yaml" in said
    (project / "petctl.yaml").write_text("stores: {'https://vig.file.core.windows.net/s': {directory: /mnt/s}}\n")
    assert config(text).folders["data"].location == "https://vig.file.core.windows.net/s/p"
    assert "give both, or neither" in refused(f"config_param: {{data_folder: {{{entry}, storage_type: file}}}}")
    assert "give both" in refused(f"config_param: {{data_folder: {{{entry}, storage_type: blob, file_share: s}}}}")


def test_a_missing_account_file_is_told_with_those_there_are() -> None:
    said = refused("config_param: {data_folder: {azure_blob_config_file: ./aux_data/configs/vigeast.yaml, path: p}}")
    assert "config_param.data_folder.azure_blob_config_file: there is no file" in said
    assert "there are: vig.yaml" in said


def test_no_secret_is_shown(project: Path) -> None:
    found = config(FOLDERS + "docker: {image: r.io/a, username: u, password: hush}\n")
    assert found.image_password == "hush"
    for secret in ("a2V5", "sig=x", "hush"):
        assert secret not in repr(found)
    (project / "petctl.yaml").write_text("clusters: {lab: {kind: kubernetes}}\n")
    assert "clusters.lab.pull_secrets" in find_config("lab").remarks[0]


def test_the_document_s_own_file(project: Path) -> None:
    """As the document has it, its accounts apart."""
    found = config(
        r"""
azure_blob_config_file: null # no need to specify, legacy option
datastore_name: null # no need to specify. legacy option
aml_config: aux_data/aml/config.json
config_param:
   code_path:
       azure_blob_config_file: ./aux_data/configs/vig.yaml # the blob account information
       path: path/to/code.zip # where the zipped source code is
   data_folder:
       azure_blob_config_file: ./aux_data/configs/vig.yaml # the blob account information
       path: path/to/data
   output_folder:
       azure_blob_config_file: ./aux_data/configs/vig.yaml # the blob account information
       path: path/to/output # this folder will be as $ROOT/output
use_custom_docker: true
compute_target: NC24RSV3
aks_compute: false
docker:
    image: amsword/setup:py36pt16
experiment_name: experiment_name
use_cli_auth: True
multi_process: True
gpu_per_node: 4
env:
   NCCL_IB_DISABLE: '0'
zip_options:
    - '-x'
    - '\*src/py-faster-rcnn/\*'
    - '-x'
    - '\*src/CMC/\*'
"""
    )
    assert (found.experiment, found.gpu_per_node, found.image) == ("experiment_name", 4, "amsword/setup:py36pt16")
    assert found.exclude == ["**/*src/py-faster-rcnn/", "**/*src/CMC/"]
    assert len(found.remarks) == 3  # the cluster, the workspace, use_cli_auth


@pytest.mark.parametrize("path", ["~nobody-of-this-name/x.yaml", "x" * 300])
def test_paths_that_no_file_can_have_are_told(project: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setenv("AML_CONFIG_PATH", path)
    with pytest.raises(UsageError, match="which does not exist"):
        find_config()


# -- whose files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["aux_data/aml/aml.yaml", "shared/base.yaml", "aux_data/configs/vig.yaml", "aux_data/aml/config.json"]
)
def test_a_file_that_others_can_change_is_refused(project: Path, name: str) -> None:
    (project / "shared").mkdir()
    (project / "shared" / "base.yaml").write_text("aml_config: aux_data/aml/config.json\n" + FOLDERS)
    (project / "aux_data" / "aml" / "config.json").write_text("{}")
    text = "_base_: ../../shared/base.yaml\n"
    assert config(text).folders["data"].location == "az://vig/box/path/to/data"
    (project / name).chmod(0o666)
    said = refused(text)
    assert "can be changed by every user (mode 0666), so petctl does not use it" in said
    assert "chmod go-w /" in said and Path(name).name in said


def test_the_file_of_the_variable_is_checked_too(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("experiment_name: e\n", "other").chmod(0o666)
    monkeypatch.setenv("AML_CONFIG_PATH", "aux_data/aml/other.yaml")
    with pytest.raises(UsageError, match="can be changed by every user"):
        find_config()


def test_files_in_a_trusted_directory_are_used(project: Path, tmp_path: Path) -> None:
    own = tmp_path / "config" / "petctl" / "config.yaml"
    own.parent.mkdir(parents=True)
    own.write_text(f"trusted: [{project / 'aux_data' / 'configs'}]\n")
    (project / "aux_data" / "configs" / "vig.yaml").chmod(0o666)
    assert [account.name for account in config(FOLDERS).accounts] == ["vig"]
