"""The verbs and flags of `az batchai`: all there, with help at once, and answers in Azure's shapes."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import pytest

from petctl.clusters.base import find_cluster
from petctl.clusters.local.backend import LocalBackend
from petctl.clusters.local.pools import pool
from petctl.clusters.managed import ManagedCluster
from petctl.compat.batchai.cli.base_command import VerbGroup, spread
from petctl.compat.batchai.cli.verbs import OWN
from petctl.compat.batchai.service.names import resource_id
from petctl.compat.batchai.service.resource_store import Trail, Tree
from petctl.errors import PetctlError
from tests.unit.batchai.conftest import FrontEnd

LAB = "-g g -w w"
DOCUMENTATION = Path(__file__).parents[3] / "docs"
VERBS = {
    "workspace create": "-n -g -l",
    "workspace show": "-n -g --ids",
    "workspace list": "-g",
    "workspace delete": "-n -g -y --no-wait --ids",
    "cluster create": (
        "-n -g -w -s --vm-size -t --target --min --max --vm-priority -i --image --custom-image -u --user-name "
        "-k --ssh-key -p --password --generate-ssh-keys --storage-account-name --storage-account-key --afs-name "
        "--afs-mount-path --bfs-name --bfs-mount-path --use-auto-storage --nfs --nfs-mount-path --subnet --setup-task "
        "--setup-task-output -f --config-file"
    ),
    "cluster show": "-n -g -w --ids",
    "cluster list": "-g -w",
    "cluster delete": "-n -g -w -y --no-wait --ids",
    "cluster resize": "-n -g -w -t --target",
    "cluster auto-scale": "-n -g -w --min --max",
    "cluster node list": "-c -g -w",
    "cluster node exec": "-c -g -w -n --node-id --exec -L -p -k --ssh-private-key",
    "cluster file list": "-c -g -w -p --path --expiry",
    "file-server create": (
        "-n -g -w -s --disk-count --disk-size --storage-sku --caching-type -u -k -p --generate-ssh-keys --subnet "
        "-f --no-wait"
    ),
    "file-server show": "-n -g -w --ids",
    "file-server list": "-g -w",
    "file-server delete": "-n -g -w -y --no-wait --ids",
    "experiment create": "-n -g -w",
    "experiment show": "-n -g -w --ids",
    "experiment list": "-g -w",
    "experiment delete": "-n -g -w -y --no-wait --ids",
    "job create": (
        "-n -c --cluster -g -w -e -f --storage-account-name --storage-account-key --afs-name --afs-mount-path "
        "--bfs-name --bfs-mount-path --nfs --nfs-mount-path --dry-run"
    ),
    "job resubmit": "-n -g -w -e -c --new-name --dry-run",
    "job show": "-n -g -w -e --ids",
    "job list": "-g -w -e",
    "job delete": "-n -g -w -e -y --no-wait --ids",
    "job terminate": "-n -g -w -e -y --no-wait --ids",
    "job wait": "-n -g -w -e --interval",
    "job file list": "-j -g -w -e -d --output-directory-id -p --path --expiry",
    "job file stream": "-j -g -w -e -d -f --file-name -p",
    "job node list": "-j -g -w -e",
    "job node exec": "-j -g -w -e -n --node-id --exec -L",
    "list-usages": "-l",
}


def leaves(group: click.Group, path: str = "") -> dict[str, click.Command]:
    """Every verb, by what one types."""
    found: dict[str, click.Command] = {}
    with click.Context(group) as ctx:
        for name in group.list_commands(ctx):
            command = group.get_command(ctx, name)
            assert command is not None
            here = f"{path} {name}".strip()
            found |= leaves(command, here) if isinstance(command, click.Group) else {here: command}
    return found


BATCHAI = leaves(VerbGroup("batchai", verbs=OWN["batchai"]))
AZ = leaves(VerbGroup("az", verbs=OWN["az"]))


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_and_flag_is_there(verb: str) -> None:
    for command in (BATCHAI[verb], AZ[f"batchai {verb}"]):
        flags = {flag for parameter in command.params for flag in parameter.opts}
        assert set(VERBS[verb].split()) <= flags
        assert {"-o", "--output", "--query", "--subscription", "--verbose", "--debug"} <= flags


@pytest.mark.parametrize("verb", sorted({*BATCHAI, *AZ}))
def test_every_verb_has_help_with_an_example(verb: str) -> None:
    command = BATCHAI.get(verb) or AZ[verb]
    with click.Context(command, info_name=verb) as ctx:
        text = command.get_help(ctx)
    assert "Examples:" in text
    assert command.get_short_help_str()
    flags = [flag for parameter in command.params for flag in parameter.opts]
    assert len(flags) == len(set(flags)), "two options with one name"
    assert all(parameter.help for parameter in command.params if isinstance(parameter, click.Option))


def lines_with(program: str) -> list[str]:
    """Commands in the documentation and in every verb's own examples, without what is said behind them."""
    pages = [(DOCUMENTATION / name).read_text().splitlines() for name in ("batchai.md", "migrating.md")]
    examples = [(command.epilog or "").splitlines() for command in {**BATCHAI, **AZ}.values()]
    found = [line.strip() for lines in (*pages, *examples) for line in lines]
    tables = [text for page in pages for line in page for text in re.findall(rf"`({program} [^`|]*)`", line)]
    said = [re.split(r"\s{2,}", line)[0] for line in found if line.startswith(f"{program} ")]
    return sorted({line for line in (*said, *tables) if "..." not in line})


@pytest.mark.parametrize("line", [*lines_with("batchai"), *lines_with("az")])
def test_every_command_that_is_shown_can_be_typed(line: str) -> None:
    program, *typed = shlex.split(line)
    command: click.Command = VerbGroup(program, verbs=OWN[program])
    with click.Context(command) as ctx:
        while isinstance(command, click.Group) and typed and not typed[0].startswith("-"):
            inner = command.get_command(ctx, typed.pop(0))
            assert inner is not None, line
            command = inner
        if isinstance(command, click.Group):
            return  # a verb named in passing
        if typed:
            command.make_context(program, spread(typed))  # raises where a word is none of its own


def test_the_first_page_imports_next_to_nothing() -> None:
    code = (
        "import sys\ntry:\n    from petctl.compat.batchai.cli.batchai import main\n    main()\n"
        "finally:\n    print('\\n'.join(sys.modules), file=sys.stderr)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code, "--help"], capture_output=True, text=True, timeout=60, env=environment
    )
    assert done.returncode == 0
    assert "Usage: batchai" in done.stdout
    modules = set(done.stderr.split())
    ours = {name for name in modules if name.startswith("petctl")}
    front = "petctl.compat.batchai.cli"
    assert ours == {"petctl", "petctl.compat", "petctl.compat.batchai", front, f"{front}.batchai", f"{front}.verbs"}
    assert not modules & {"click", "yaml", "msgspec", "jmespath", "sqlite3", "asyncio"}


def test_ids_take_all_words_up_to_the_next_option() -> None:
    assert spread(["show", "--ids", "/a", "/b", "-o", "tsv"]) == ["show", "--ids", "/a", "--ids", "/b", "-o", "tsv"]


def test_resources_are_made_shown_listed_and_deleted(batchai: FrontEnd) -> None:
    batchai("group create -n g")
    batchai("workspace create -g g -n w -l eastus")
    shown = batchai.json("workspace show -g g -n w")
    assert shown["id"] == resource_id("g", "w")
    assert shown["location"] == "eastus"
    made = batchai.json(f"experiment create {LAB} -n e")
    assert made["type"] == "Microsoft.BatchAI/workspaces/experiments"
    assert batchai.json(f"experiment list {LAB}") == [made]
    assert batchai.json(f"experiment show --ids {made['id']}") == made
    batchai(f"experiment create {LAB} -n f")
    both = batchai.json(f"experiment show --ids {made['id']} {resource_id('g', 'w', 'experiments', 'f')}")
    assert [one["name"] for one in both] == ["e", "f"]
    batchai(f"experiment delete {LAB} -n e -y")
    batchai(f"experiment show {LAB} -n e", code=3)
    batchai("workspace delete -g g -n w -y")
    assert batchai.json("workspace list") == []


def test_a_cluster_has_every_key_of_the_document(batchai: FrontEnd) -> None:
    batchai("group create -n g")
    batchai("workspace create -g g -n w")
    made = batchai.json(f"cluster create -n nc6 {LAB} -s Standard_NC6 -t 2 --generate-ssh-keys")
    assert "--vm-size, --generate-ssh-keys have no effect" in batchai.said
    assert sorted(made) == sorted(
        [
            "allocationState",
            "allocationStateTransitionTime",
            "creationTime",
            "currentNodeCount",
            "errors",
            "id",
            "name",
            "nodeSetup",
            "nodeStateCounts",
            "provisioningState",
            "provisioningStateTransitionTime",
            "resourceGroup",
            "scaleSettings",
            "subnet",
            "type",
            "userAccountSettings",
            "virtualMachineConfiguration",
            "vmPriority",
            "vmSize",
            "petctl",
        ]
    )
    assert made["allocationState"] == "steady"
    assert made["currentNodeCount"] == made["nodeStateCounts"]["idleNodeCount"] == 2
    assert made["vmSize"] == "STANDARD_NC6"
    assert made["creationTime"].endswith("+00:00")
    smaller = batchai.json(f"cluster resize -n nc6 {LAB} -t 0")
    assert smaller["scaleSettings"]["manual"]["targetNodeCount"] == smaller["currentNodeCount"] == 0
    growing = batchai.json(f"cluster auto-scale -n nc6 {LAB} --min 0 --max 3")
    assert growing["scaleSettings"]["autoScale"]["maximumNodeCount"] == 3
    batchai(f"cluster node exec -c nc6 {LAB} --exec true", code=2)
    assert "has no nodes now" in batchai.said
    assert "Workspace" in batchai(f"cluster list {LAB} -o table")
    batchai(f"cluster delete -n nc6 {LAB} -y")
    batchai(f"cluster show -n nc6 {LAB}", code=3)


def test_two_groups_may_have_clusters_of_one_name(batchai: FrontEnd, home: Path) -> None:
    names = []
    for group in ("g", "h.x"):
        batchai(f"group create -n {group}")
        batchai(f"workspace create -g {group} -n w")
        names.append(batchai.json(f"cluster create -n nc6 -g {group} -w w -t 1")["petctl"]["cluster"])
    assert names == ["nc6", "h-x-w-nc6"]
    batchai("cluster create -n local -g g -w w -t 1")
    assert batchai.json("cluster show -n local -g g -w w")["petctl"]["cluster"] == "g-w-local"
    batchai("cluster delete -n nc6 -g h.x -w w -y")
    assert batchai.json("cluster show -n nc6 -g g -w w")["currentNodeCount"] == 1
    batchai("group delete -n g -y")
    assert not list((home / "clusters").glob("[a-z]*/cluster.json"))


def test_what_is_said_of_this_machine_holds_for_its_clusters(batchai: FrontEnd, home: Path, tmp_path: Path) -> None:
    (tmp_path / "petctl.yaml").write_text("clusters: {local: {container: /opt/podman, slots: 3}}")
    batchai("group create -n g")
    batchai("workspace create -g g -n w")
    batchai(f"cluster create -n nc6 {LAB} -t 2")
    settings = cluster_settings_of(home, "nc6")
    assert settings["container"] == "/opt/podman"
    assert "slots" not in settings


def cluster_settings_of(home: Path, name: str) -> Mapping[str, Any]:
    cluster = find_cluster(name, home)
    assert isinstance(cluster, ManagedCluster) and isinstance(cluster.backend, LocalBackend)
    return cluster.backend.settings


def test_a_cluster_mounts_what_it_is_told_to(batchai: FrontEnd, home: Path) -> None:
    batchai("group create -n g")
    batchai("workspace create -g g -n w")
    batchai("storage account create -n mystorage -g g")
    batchai("storage share create -n logs --account-name mystorage")
    batchai(f"cluster create -n nc6 {LAB} -t 1 --storage-account-name mystorage --afs-name nosuch", code=2)
    assert "no storage account 'mystorage' with a share 'nosuch'" in batchai.said
    batchai(f"cluster show -n nc6 {LAB}", code=3)
    batchai(f"file-server create -n data {LAB}")
    made = batchai.json(
        f"cluster create -n nc6 {LAB} -t 1 --use-auto-storage "
        "--storage-account-name mystorage --afs-name logs --nfs data"
    )
    paths = {kind: [entry["relativeMountPath"] for entry in entries or []] for kind, entries in
             made["nodeSetup"]["mountVolumes"].items()}  # fmt: skip
    assert paths == {
        "azureFileShares": ["autoafs", "afs"],
        "azureBlobFileSystems": ["autobfs"],
        "fileServers": ["nfs"],
        "unmanagedFileSystems": [],
    }
    mounts = home / "clusters" / "nc6" / "mounts"
    assert (mounts / "afs").resolve() == home / "batchai" / "storage" / "mystorage" / "file" / "logs"
    assert (mounts / "nfs").is_dir()


def test_a_cluster_of_the_same_name_that_was_made_later_is_another(batchai: FrontEnd, home: Path) -> None:
    batchai("group create -n g")
    batchai("workspace create -g g -n w")
    batchai(f"cluster create -n nc6 {LAB} -t 2")
    pool.delete(home, "nc6")
    pool.create(home, "nc6", {"nodes": 1})
    shown = batchai.json(f"cluster show -n nc6 {LAB}")
    assert (shown["currentNodeCount"], shown["errors"][0]["code"]) == (0, "ClusterGone")
    batchai(f"cluster resize -n nc6 {LAB} -t 3", code=2)
    batchai(f"cluster delete -n nc6 {LAB} -y")
    assert pool.read(home, "nc6")["nodes"] == 1


def test_what_keeps_a_resource_from_being_deleted_is_told_by_show(
    batchai: FrontEnd, monkeypatch: pytest.MonkeyPatch
) -> None:
    batchai("group create -n g")
    batchai("workspace create -g g -n w")
    batchai(f"cluster create -n nc6 {LAB} -t 1")

    def refuse(*_: object, **__: object) -> None:
        raise PetctlError("something is still mounted")

    with monkeypatch.context() as patched:
        patched.setattr(pool, "delete", refuse)
        batchai("group delete -n g -y", code=1)
    for line in ("group show -n g", "workspace show -g g -n w", f"cluster show -n nc6 {LAB}"):
        shown = batchai.json(line)
        assert shown["petctl"]["problem"] == "something is still mounted"
        state = shown.get("provisioningState") or shown["properties"]["provisioningState"]
        assert state.lower() == "failed"
    batchai("group delete -n g -y")
    assert batchai.json("group list") == []


def test_others_who_delete_meanwhile_are_in_nobodys_way(batchai: FrontEnd, monkeypatch: pytest.MonkeyPatch) -> None:
    batchai("group create -n g")
    batchai("workspace create -g g -n w")
    for name in ("e", "gone"):
        batchai(f"experiment create {LAB} -n {name}")
    names = Tree.names

    def with_ghosts(tree: Tree, trail: Trail, collection: str) -> list[str]:
        return sorted({*names(tree, trail, collection), "gone"})

    batchai(f"experiment delete {LAB} -n gone -y")
    monkeypatch.setattr(Tree, "names", with_ghosts)
    assert [one["name"] for one in batchai.json(f"experiment list {LAB}")] == ["e"]
    batchai("workspace delete -g g -n w -y")


def test_a_deletion_that_nobody_waits_for_is_the_same_one(batchai: FrontEnd, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr("petctl.compat.batchai.cli.resources.background", started.append)
    batchai("group create -n g")
    batchai("workspace create -g g -n w")
    batchai(f"experiment create {LAB} -n -e")
    batchai(f"cluster create -n _c {LAB} -t 0")
    for line in (f"experiment delete {LAB} -n -e", f"cluster delete {LAB} -n _c", "workspace delete -g g -n w"):
        batchai(f"{line} -y --no-wait")
    for words in started:
        batchai(" ".join(words))
    assert batchai.json("workspace list") == []


def test_deletes_leave_nothing(batchai: FrontEnd, home: Path) -> None:
    batchai("group create -n g")
    batchai("workspace create -g g -n w")
    batchai(f"experiment create {LAB} -n e")
    batchai(f"cluster create -n nc6 {LAB} -t 1")
    batchai("storage account create -n mystorage -g g")
    batchai("group delete -n g -y")
    assert batchai.json("group list") == []
    assert batchai.json("group exists -n g") is False
    assert [path.name for path in (home / "batchai").rglob("*") if path.is_file()] == ["lock"]


def test_a_stand_in_says_what_it_does_not_do(az: FrontEnd) -> None:
    az("vm create -n x", code=2)
    assert "unknown command 'vm'" in az.said
    az("login")
    assert "needs no account" in az.said
    assert az("account show --query id -o tsv").startswith("00000000-")


def test_usages_are_numbers(batchai: FrontEnd) -> None:
    batchai("group create -n g")
    batchai("workspace create -g g -n w")
    batchai(f"cluster create -n nc6 {LAB} -t 2")
    usages = {row["name"]["value"]: row["currentValue"] for row in batchai.json("list-usages")}
    assert usages == {"Slots": 0, "Nodes": 2, "Clusters": 1, "Workspaces": 1}


def test_a_job_may_be_named_as_batch_ai_allows(batchai: FrontEnd, tmp_path: Path) -> None:
    properties = {"nodeCount": 1, "customToolkitSettings": {"commandLine": "true"}, "stdOutErrPathPrefix": "/logs"}
    (tmp_path / "job.json").write_text(json.dumps({"properties": properties}))
    for name, own in (("_x", "x"), ("-x-", "x-"), ("---", "job")):
        plan = batchai.json(f"job create -n {name} -f job.json --dry-run")["petctl"]
        assert plan["name"] == own
        assert f"/jobs/{name}/" in plan["task"]["layout"]["said"]["segment"]


def test_defaults_come_from_the_environment(batchai: FrontEnd, monkeypatch: pytest.MonkeyPatch) -> None:
    batchai("group create -n g")
    batchai("workspace create -g g -n w")
    monkeypatch.setenv("AZURE_DEFAULTS_GROUP", "g")
    monkeypatch.setenv("AZURE_DEFAULTS_WORKSPACE", "w")
    assert json.loads(batchai("experiment create -n e"))["resourceGroup"] == "g"


def test_the_shell_completes_verbs_and_names(batchai: FrontEnd, home: Path) -> None:
    batchai("group create -n recipes")
    batchai("workspace create -g recipes -n w")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "_BATCHAI_COMPLETE": "bash_complete",
        "COMP_WORDS": "batchai workspace show -g re",
        "COMP_CWORD": "4",
    }
    done = subprocess.run(
        [sys.executable, "-m", "petctl.compat.batchai.cli.batchai"],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
    )
    assert "recipes" in done.stdout
    assert "_BATCHAI_COMPLETE" in batchai("completion bash")


def test_a_group_that_was_mistyped_is_not_made(batchai: FrontEnd) -> None:
    batchai("group create -n recipes")
    batchai("workspace create -g recipse -n lab", code=3)
    assert "there is no group 'recipse'" in batchai.said and "group create -n recipse" in batchai.said
    assert [group["name"] for group in batchai.json("group list")] == ["recipes"]
