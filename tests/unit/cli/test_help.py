"""Help comes at once, for every verb, with examples, and the documentation names every verb and option."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from petctl.cli.group import petctl
from petctl.cli.job_options import JobOption
from petctl.cli.main import main
from petctl.cli.verbs import VERBS, overview
from petctl.job.file.read import job_from_dict
from petctl.job.spec import Job

HELP: dict[str, Any] = {"help_option_names": ["-h", "--help"]}  # a command keeps those of the first context it sees
DOCUMENTATION = Path(__file__).parents[3] / "docs" / "cli.md"


def commands() -> dict[str, click.Command]:
    """Every verb, and the verbs under a verb, by what one types."""
    found: dict[str, click.Command] = {}
    with petctl.make_context("petctl", ["list"]) as ctx:
        for name in VERBS:
            verb = petctl.get_command(ctx, name)
            assert verb is not None
            found[name] = verb
            if isinstance(verb, click.Group):
                found |= {f"{name} {under}": command for under, command in verb.commands.items()}
    return found


COMMANDS = commands()


def modules_after(*words: str) -> set[str]:
    """What a fresh interpreter has imported when it has answered these words."""
    code = (
        "import sys\ntry:\n    from petctl.cli.main import main\n    main()\n"
        "finally:\n    print('\\n'.join(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        timeout=30,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    assert "Usage:" in done.stdout
    return set(done.stderr.split())


def test_first_help_imports_next_to_nothing() -> None:
    modules = modules_after("--help")
    ours = {name for name in modules if name.startswith("petctl")}
    assert ours == {"petctl", "petctl.cli", "petctl.cli.main", "petctl.cli.verbs"}
    assert not modules & {"click", "rich", "yaml", "msgspec", "asyncio", "sqlite3", "cryptography"}


@pytest.mark.parametrize("verb", ["run", "list", "status", "logs"])
def test_help_of_a_verb_imports_nothing_that_works(verb: str) -> None:
    modules = modules_after(verb, "--help")
    assert not modules & {
        "petctl.job.spec",
        "petctl.jobs",
        "petctl.clusters",
        "rich",
        "yaml",
        "msgspec",
        "asyncio",
        "sqlite3",
    }


def test_the_first_page_names_every_verb() -> None:
    page = overview()
    assert all(f"\n  {verb}" in page for verb in VERBS)
    assert all(len(line) <= 80 for line in page.splitlines())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_verb_has_help_with_examples(name: str) -> None:
    with click.Context(COMMANDS[name], info_name=f"petctl {name}", **HELP) as ctx:
        text = COMMANDS[name].get_help(ctx)
    assert "Examples:\n" in text
    assert f"petctl {name}" in text.partition("Examples:\n")[2]
    for parameter in COMMANDS[name].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{name} {parameter.opts} has no help"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_verb_and_option_is_documented(name: str) -> None:
    page = DOCUMENTATION.read_text()
    verb = name.split()[0]
    assert f"\n## petctl {verb}\n" in page
    section = page.partition(f"\n## petctl {verb}\n")[2].partition("\n## ")[0]
    assert f"petctl {name}" in section
    shared = page.partition("\n## Options of a job\n")[2].partition("\n## ")[0]
    text = section + shared if verb in ("run", "submit", "sweep", "render") else section
    for parameter in COMMANDS[name].params:
        if isinstance(parameter, click.Option):
            for option in parameter.opts:
                assert f"`{option}" in text or f", {option}" in text, f"{option} of {name} is not in docs/cli.md"


def test_verbs_under_a_verb_are_told_in_whole_sentences() -> None:
    for name, command in COMMANDS.items():
        if isinstance(command, click.Group):
            with click.Context(command, info_name=name, terminal_width=80, **HELP) as ctx:
                told = command.get_help(ctx).partition("Verbs:\n")[2].partition("Examples:")[0]
            assert told and "..." not in told.replace("... ", ""), name


def test_help_of_a_verb(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["help", "run"], ["run", "--help"], ["help", "cluster", "create"]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 0
        assert capsys.readouterr().out.startswith(f"Usage: petctl {' '.join(words).replace('help', '').strip(' -')} ")
    with pytest.raises(SystemExit) as ended:
        main(["help", "rnu"])
    assert ended.value.code == 2 and "Did you mean run?" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["run", "submit", "render", "sweep run"])
def test_options_of_a_job_are_in_groups_each_with_its_default(name: str) -> None:
    with click.Context(COMMANDS[name], info_name=name, terminal_width=400, max_content_width=400, **HELP) as ctx:
        told = COMMANDS[name].get_help(ctx)
    places = [told.index(f"\n{group}:\n") for group in ("Common", "Size", "Code and results", "Failures", "Cluster")]
    assert places == sorted(places)
    assert "\nOptions:" not in told
    with click.Context(COMMANDS["run"], info_name="run") as ctx:
        records = [option.get_help_record(ctx) for option in COMMANDS["run"].params if isinstance(option, click.Option)]
    assert [record for record in records if record is None or "[default: " not in record[1]] == []


@pytest.mark.parametrize(
    "option", [one for one in COMMANDS["run"].params if isinstance(one, JobOption)], ids=lambda one: one.name
)
def test_the_default_that_help_shows_is_that_of_a_job(option: JobOption) -> None:
    field = {"cluster": ""}.get(option.name or "", option.name or "")
    value = getattr(Job(script="a"), field, None)
    if option.usual in ("no", "none"):
        assert not value
    elif option.usual[0].isdigit() or field == "launcher":
        assert getattr(job_from_dict({"script": "a", field: option.usual}), field) == value
    else:
        assert value in (None, "", 0, [], "all")
