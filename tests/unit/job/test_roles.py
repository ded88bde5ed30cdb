"""Roles of a job: what may be written, what it means, and that it is written back."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from petctl.errors import SpecError, UsageError
from petctl.job.file.read import job_from_dict, read_job
from petctl.job.file.write import job_to_dict, job_to_yaml
from petctl.job.spec import Job
from petctl.job.spec.problems import FieldError
from petctl.job.spec.roles import Role, parse_role_option, roles


def job(*given: object, **fields: Any) -> Job:
    return Job(**{"script": "train.py", "launcher": "plain", "roles": list(given), **fields})


def test_a_role_adds_to_the_jobs_command_or_has_its_own() -> None:
    made = roles(
        [
            {"name": "ps", "count": 1, "args": "--job_name ps"},
            {"name": "worker", "count": "nodes", "module": "pkg.worker", "args": ["-v"]},
            {"name": "chief", "count": "2", "program": "run me"},
            {"name": "watch", "shell": "tail -F log", "serves": "true"},
        ]
    )
    assert made == [
        Role(name="ps", count=1, words=["--job_name", "ps"], serves=True),
        Role(name="worker", words=["pkg.worker", "-v"], kind="module"),
        Role(name="chief", count=2, words=["run", "me"], kind="program"),
        Role(name="watch", words=["tail -F log"], kind="shell", serves=True),
    ]
    assert roles(made) == made


def test_a_parameter_server_may_end_by_itself_if_that_is_said() -> None:
    (made,) = roles([{"name": "ps", "serves": False}])
    assert not made.serves


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("ps", "expected a list of roles"),
        (["ps"], "[0]: expected a role such as {name: ps, count: 1}, got 'ps'"),
        ([{"count": 1}], "[0].name: expected 1 to 32 letters"),
        ([{"name": "a b"}], "[0].name: expected 1 to 32 letters"),
        ([{"name": "ps", "count": 0}], "[0].count: expected a number from 1 to 100000, or nodes"),
        ([{"name": "ps", "count": "all"}], "[0].count: expected a number"),
        ([{"name": "ps", "cuont": 2}], "unknown field; did you mean 'count'?"),
        ([{"name": "ps", "serves": "maybe"}], "[0].serves: expected true or false"),
        ([{"name": "ps", "script": "a.py", "shell": "b"}], "[0].shell: a second command besides 'script'"),
        ([{"name": "ps", "shell": "b", "args": ["c"]}], "[0].args: a shell line takes no arguments"),
        ([{"name": "ps"}, {"name": "ps"}], "[1].name: there is a second role 'ps'"),
    ],
)
def test_what_is_wrong_is_said_where_it_is(given: object, sentence: str) -> None:
    with pytest.raises(FieldError) as caught:
        roles(given)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"launcher": "elastic"}, "roles: are for launcher plain, not elastic"),
        ({"procs": 2}, "procs: the roles' counts say how many processes there are"),
        ({"roles": [{"name": "ps", "count": 1}]}, "roles: every role is a server (serves: true)"),
        ({"nodes": "2:4"}, "nodes: the largest role has 3 tasks, too few for 4 nodes; ask for at most 3"),
    ],
)
def test_roles_have_to_fit_the_job(fields: dict[str, Any], sentence: str) -> None:
    given = {"roles": [{"name": "ps", "count": 1}, {"name": "worker", "count": 3}], **fields}
    with pytest.raises(FieldError) as caught:
        job(**given)
    assert sentence in str(caught.value)


def test_a_role_of_every_node_fits_any_size() -> None:
    assert job({"name": "ps", "count": 1}, {"name": "worker"}, nodes="2:100").nodes.max == 100


def test_roles_are_written_back_as_they_may_be_read(tmp_path: Path) -> None:
    made = job(
        {"name": "ps", "count": 1, "args": ["--ps"]},
        {"name": "worker", "script": "w.py", "args": ["x"]},
        {"name": "chief", "count": 1, "program": ["a", "b"]},
        {"name": "ps2", "count": 1, "shell": "sleep 1", "serves": True},
    )
    assert job_to_dict(made)["roles"] == [
        {"name": "ps", "count": 1, "args": ["--ps"]},
        {"name": "worker", "count": "nodes", "script": "w.py", "args": ["x"]},
        {"name": "chief", "count": 1, "program": ["a", "b"]},
        {"name": "ps2", "count": 1, "shell": "sleep 1", "serves": True},
    ]
    assert job_from_dict(job_to_dict(made)) == made
    file = tmp_path / "job.yaml"
    file.write_text(job_to_yaml(made))
    assert read_job(file) == made


def test_values_are_filled_into_words_and_a_shell_keeps_its_own(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        "script: train.py\nlauncher: plain\nroles:\n"
        '- {name: ps, count: 1, shell: "echo ${HOME}"}\n- {name: worker, args: "--data ${DATA}"}\n'
    )
    first, second = read_job(file, {"DATA": "a b"}).roles
    assert (first.words, second.words) == (["echo ${HOME}"], ["--data", "a b"])


def test_a_mistake_in_a_file_is_told_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("script: train.py\nlauncher: plain\nroles:\n- name: worker\n  count: many\n")
    with pytest.raises(SpecError, match=r"job.yaml:5:10: roles\[0\].count: expected a number"):
        read_job(file)


def test_on_the_command_line_it_is_one_word() -> None:
    assert parse_role_option("worker=4") == Role(name="worker", count=4)
    assert parse_role_option("ps=nodes:--a 'b c' d:e=f").words == ["--a", "b c", "d:e=f"]
    for text in ("ps", "ps=", "=1", "ps=x", "a b=1"):
        with pytest.raises(UsageError, match="--role"):
            parse_role_option(text)


def test_the_example_of_the_page_about_launchers_is_a_job(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "launchers.md").read_text()
    (text,) = re.findall(r"```yaml\n(.*?roles:.*?)```", page, re.DOTALL)
    (tmp_path / "job.yaml").write_text(text)
    made = read_job(tmp_path / "job.yaml")
    assert [(role.name, role.count, role.serves, role.kind) for role in made.roles] == [
        ("ps", 1, True, ""),
        ("worker", 0, False, ""),
        ("evaluator", 1, False, "script"),
    ]
