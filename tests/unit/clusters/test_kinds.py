"""Kinds of clusters that other packages bring are found by their entry points."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from petctl import kinds
from petctl.cli.clusters.cluster import command
from petctl.cli.failures import run_to_exit_code
from petctl.cli.group import petctl as group
from petctl.cli.jobs.run import command as run
from petctl.cli.verbs import VERBS
from petctl.clusters.base import find_cluster
from petctl.clusters.provisioner import find_provisioner
from petctl.errors import SpecError, UsageError
from petctl.job.file.read import job_from_dict
from petctl.job.file.write import job_to_dict
from tests.unit.cli.test_words import job_of

STRANGER = """
from petctl.clusters.debug.backend import DebugBackend
from petctl.clusters.managed import ManagedCluster

class Racks:
    def create(self, home, name, spec):
        (home / name).mkdir(parents=True)
        return self.read(home, name)

    def names(self, home):
        return [path.name for path in home.iterdir()]

    def read(self, home, name):
        scale = {"mode": "manual", "nodes": 4}
        return {"name": name, "scale": scale, "nodes": 4, "counts": {"idle": 4}, "running": [], "queued": []}

    def read_all(self, home):
        return [self.read(home, name) for name in self.names(home)]

    def delete(self, home, name, force=False):
        (home / name).rmdir()

racks = Racks()

def connect(home, settings):
    if set(settings) - {"name", "kind", "rack"}:
        raise ValueError(settings)
    return ManagedCluster(DebugBackend(home, f"{settings['name']} of rack {settings.get('rack')}"))
"""

OPTIONS = """
from __future__ import annotations

from typing import Annotated, Any

from petctl.job.spec.options import Options


class RackOptions(Options):
    rack: Annotated[int, "The rack to run in."] = 3
    quiet: Annotated[bool, "Slow fans."] = False
    label: Annotated[str, "A label."] = ""
    tags: Annotated[list[str], "Some tags."] = []
    power: Annotated[float | None, "Watts at most."] = None
    more: Annotated[dict[str, Any], "Anything."] = {}
"""


COMMAND = """
import click

from petctl.console.commands import examples, output_option, print_json


@click.command("racks", epilog=examples("petctl racks"))
@output_option()
def command(output):
    \"\"\"List the racks.\"\"\"
    print_json(["a", "b"]) if output == "json" else click.echo("a b")
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home, beside an installed package that brings the kind `strange`."""
    site = tmp_path / "site"
    (site / "strange-1.0.dist-info").mkdir(parents=True)
    (site / "strange-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: strange\nVersion: 1.0\n")
    (site / "strange-1.0.dist-info/entry_points.txt").write_text(
        "[petctl.clusters]\nstrange = strange_cluster:connect\n[petctl.provisioners]\nstrange = strange_cluster:racks\n"
        "[petctl.options]\nstrange = strange_options:RackOptions\n"
        "[petctl.commands]\nracks = strange_command:command\nrun = strange_command:command\n"
    )
    (site / "strange_cluster.py").write_text(STRANGER)
    (site / "strange_options.py").write_text(OPTIONS)
    (site / "strange_command.py").write_text(COMMAND)
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    kinds._brought.cache_clear()
    yield tmp_path / "home"
    kinds._brought.cache_clear()
    for module in ("strange_cluster", "strange_command", "strange_options"):
        sys.modules.pop(module, None)


def test_a_strangers_kind_is_found_by_its_entry_point(home: Path) -> None:
    (home.parent / "petctl.yaml").write_text("clusters: {lab: {kind: strange, rack: 7}}\n")
    assert find_cluster("lab", home).name == "lab of rack 7"
    assert find_cluster("strange", home).name == "strange of rack None"  # the kind's own name will do, too
    assert "strange" in kinds.all_kinds()


def test_a_kind_that_no_package_brings_is_told_with_those_there_are(home: Path) -> None:
    (home.parent / "petctl.yaml").write_text("clusters: {lab: {kind: stranger}}\n")
    with pytest.raises(UsageError, match=r"no cluster 'lab'; the clusters are: debug, k8s, kubernetes, local, strange"):
        find_cluster("lab", home)
    assert not kinds.is_kind("stranger")


def test_petctls_own_kinds_are_found_without_reading_entry_points(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read() -> None:
        raise AssertionError("entry points were read")

    with monkeypatch.context() as patch:
        patch.setattr(kinds, "_brought", read)
        assert find_cluster("local", home).name == "local"


def test_a_strangers_kind_makes_its_clusters_by_its_entry_point(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PETCTL_HOME", str(home))

    def petctl(*words: str) -> Result:
        return CliRunner().invoke(command, [*words, "-k", "strange"])

    made = petctl("create", "lab", "--nodes", "4")
    assert made.exit_code == 0, made.output
    assert made.stdout == "lab\n  size       4\n  nodes      4: 4 idle\n  jobs       0 running, 0 queued\n"
    assert petctl("list").stdout.split()[-8:] == ["lab", "4", "4", "0", "0", "0", "0", "0"]
    assert petctl("delete", "lab").exit_code == 0 and not (home / "lab").exists()


def test_a_kind_without_provisioner_says_which_have_one(home: Path) -> None:
    with pytest.raises(UsageError, match="cannot create debug clusters; kinds that it can create: local, strange"):
        find_provisioner("debug")


def test_a_strangers_kind_brings_its_options_without_its_modules(home: Path) -> None:
    (home.parent / "petctl.yaml").write_text("clusters: {lab: {kind: strange}}\n")
    shown = " ".join(CliRunner().invoke(run, ["--help", "-c", "lab"]).stdout.split())
    assert "Options of strange clusters: -O rack=N The rack to run in. [default: 3]" in shown
    assert "-O quiet=true|false Slow fans. [default: false]" in shown
    assert "-O label=TEXT A label. [default: none] -O tags=LIST Some tags. [default: none]" in shown
    assert "-O power=NUMBER Watts at most. [default: none] -O more=MAPPING Anything." in shown
    said = ("rack=7", "quiet=true", "label={x}", "tags=[a, 0.10]", "power=2.5", "more={a: [1, '2', {b: true}]}")
    job = job_of("-c", "lab", *(word for text in said for word in ("-O", text)), "train.py")
    plain = {"rack": 7, "quiet": True, "label": "{x}", "tags": ["a", "0.10"], "power": 2.5}
    assert job_to_dict(job)["options"] == {"strange": {**plain, "more": {"a": [1, "2", {"b": True}]}}}
    assert job_from_dict(job_to_dict(job)) == job
    with pytest.raises(SpecError, match=r"^options\.strange\.rack: expected N, got 'x'$"):
        job_of("-c", "lab", "-O", "rack=x", "train.py")
    with pytest.raises(UsageError, match=r"strange clusters have no option 'racks'; did you mean 'rack'\?"):
        job_of("-c", "lab", "-O", "racks=1", "train.py")
    assert "strange_cluster" not in sys.modules


def test_a_strangers_kind_brings_a_verb(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def petctl(*words: str) -> tuple[int, str, str]:
        code = run_to_exit_code(words)
        return code, *capsys.readouterr()

    assert petctl("racks") == (0, "a b\n", "")
    assert petctl("racks", "-o", "json") == (0, '[\n  "a",\n  "b"\n]\n', "")
    assert "Usage: petctl racks" in petctl("help", "racks")[1]
    assert "Commands of other packages: racks\n" in petctl("help")[1]
    code, _, said = petctl("rakcs")
    assert code == 2 and "unknown command 'rakcs'. Did you mean racks?" in said
    assert "train.py" in petctl("run", "--help")[1], "no package takes a verb of petctl's"


def test_the_shell_completes_verbs_of_strangers(home: Path) -> None:
    complete = ShellComplete(group, {}, "petctl", "_PETCTL_COMPLETE")
    assert [item.value for item in complete.get_completions([], "ra")] == ["racks"]
    assert [item.value for item in complete.get_completions([], "ru")] == ["run"]
    assert "volume" in [item.value for item in complete.get_completions([], "vol")]


def test_verbs_of_petctl_are_found_without_reading_entry_points(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(group: str) -> None:
        raise AssertionError("entry points were read")

    with monkeypatch.context() as patch:
        patch.setattr(kinds, "_brought", read)
        for verb in VERBS:
            found = group.get_command(click.Context(group), verb)
            assert found is not None and found.name == verb
