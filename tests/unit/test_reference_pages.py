"""Reference pages name everything that there is, and nothing else: petctl.yaml, workers' environment, Python API."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

import petctl
import petctl.elastic
import petctl.jobs
from petctl.agent.launchers.mpi import HOSTFILE, host_variables
from petctl.agent.launchers.roles import assignments
from petctl.agent.warm import startup
from petctl.agent.workers.environment import ROUND_NAMES, RoundContext, worker_environment
from petctl.agent.workers.processes import STEP
from petctl.config.keys import KUBERNETES, LOCAL, STORE, TOP, USERS_OWN, check_keys, kubernetes_keys
from petctl.job.status import FINAL, ErrorStatus, JobStatus
from petctl.job.task import Role, Task
from petctl.rendezvous.core.messages import Place

DOCS = Path(__file__).parents[2] / "docs"
SOURCE = Path(petctl.__file__).parent


def page(name: str) -> str:
    return (DOCS / f"{name}.md").read_text()


def rows(text: str) -> list[str]:
    """The names in the first column of a page's tables."""
    cells = [re.split(r"(?<!\\)\|", line)[1] for line in text.splitlines() if line.startswith("| `")]
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


# -- petctl.yaml -------------------------------------------------------------------------------------------------------


def test_every_setting_is_on_the_page() -> None:
    named = set(rows(page("configuration")))
    assert {*TOP, *USERS_OWN, *STORE, *LOCAL, *KUBERNETES} - named == {"kind"}
    settings = {name for name in named if name.islower()}
    assert settings <= {*TOP, *USERS_OWN, *STORE, *LOCAL, *kubernetes_keys(), "..."}


def test_the_example_of_a_configuration_is_accepted() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", page("configuration"), re.DOTALL)
    check_keys(Path("petctl.yaml"), yaml.safe_load(text), users_own=False)


def test_every_variable_that_a_command_reads_is_on_the_page() -> None:
    read: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        read |= set(re.findall(r'environ(?:\.get\(|\[)"(PETCTL_(?:HOME|CACHE|LOG))"', path.read_text()))
    assert read <= set(rows(page("configuration")))


# -- the environment of workers ----------------------------------------------------------------------------------------


def given(**more: Any) -> set[str]:
    """What a worker of such a task gets."""
    place = Place(
        rank=0, first_rank=0, nodes=1, world_size=2, master_addr="10.0.0.1", master_port=1234, offers=("10.0.0.1 1 2",)
    )
    context = RoundContext("0", "job/0/1", 1, 1, place, 0, 2, gpus="0", socket="/s", library="/l")
    task = Task(job="j", kind="program", output_dir="/o", outputs=["model"], checkpoint_dir="/c", words=["x"], **more)
    names = set(worker_environment({}, task, context, 0, "/e"))
    if more.get("launcher") == "plain":
        names |= {name for one in assignments(task, context) for name in one.variables}
    return names


def test_every_variable_of_a_worker_is_on_the_page_and_no_other() -> None:
    roles = [Role(name="ps", count=1), Role(name="worker", count=1)]
    hosts: Any = [SimpleNamespace(address="10.0.0.1", name="0", slots=1)]
    names = {
        *ROUND_NAMES,
        *given(),
        *given(launcher="plain"),
        *given(launcher="plain", roles=roles),
        *host_variables(hosts, "/hosts"),
        *(HOSTFILE, STEP, "PETCTL_PROGRESS", startup.VARIABLE, startup.SNAPSHOT, startup.STACKS),
    }
    names = names - {"PETCTL_OUTPUT_MODEL"} | {"PETCTL_OUTPUT_<ID>"}
    assert sorted(rows(page("environment"))) == sorted(names)


# -- the Python API ----------------------------------------------------------------------------------------------------


def test_every_name_of_the_api_is_on_the_page() -> None:
    text = page("python")
    for name in petctl.__all__:
        assert f"petctl.{name}" in text, name
    for name in petctl.jobs.__all__:
        assert re.search(rf"`(?:petctl\.(?:jobs\.)?)?{name}[`(]", text), name
    for name in petctl.elastic.__all__:
        assert f"`elastic.{name}(" in text, name


def test_every_name_on_the_page_is_one_of_the_api() -> None:
    text = page("python")
    for path in re.findall(r"\b(petctl(?:\.[A-Za-z_]+)+)", re.sub(r"petctl\.yaml", "", text)):
        found: Any = petctl
        for part in path.split(".")[1:]:
            found = getattr(found, part)
    for name in re.findall(r"\belastic\.([A-Za-z_]+)", text):
        assert hasattr(petctl.elastic, name)


def test_every_method_of_a_handle_is_on_the_page_with_its_arguments() -> None:
    section = page("python").partition("## A handle")[2].partition("\n## ")[0]
    methods = [name for name in vars(petctl.JobHandle) if not name.startswith("_")]
    assert {name.partition("(")[0] for name in rows(section)} == {"id", *methods}
    for call in (name for name in rows(section) if "(" in name):
        arguments = set(re.findall(r"(\w+)(?:=|,|\))", call.partition("(")[2])) - {"None", "False", "0", "3600"}
        assert arguments <= set(inspect.signature(getattr(petctl.JobHandle, call.partition("(")[0])).parameters), call


def test_the_fields_of_a_status_are_true() -> None:
    section = page("python").partition("## A status")[2].partition("\n## ")[0]
    states = {"pending", "queued", "starting", "running", "recovering", *FINAL}
    known = {*JobStatus.__dataclass_fields__, *ErrorStatus.__dataclass_fields__, *states, "final", "to_dict()"}
    assert set(re.findall(r"`([^`]+)`", section)) - {"petctl status -o json"} <= known
    assert states <= set(re.findall(r"`([^`]+)`", section))


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", page("python"), re.DOTALL))
def test_examples_of_the_api_are_python(code: str) -> None:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "petctl.Job":
            eval(ast.unparse(node), {"petctl": petctl})  # a job like that can be described
