"""Which verbs the front ends have, and the first pages of their help, which are printed before click is imported.

A verb names a module below `petctl.compat` and the click group or command in it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from click import Command

BATCHAI = {
    "workspace": ("batchai.cli.resources:workspace", "Workspaces: create, show, list, delete"),
    "cluster": (
        "batchai.cli.resources:cluster",
        "Clusters: create, show, list, delete, resize, auto-scale; nodes and files",
    ),
    "file-server": ("batchai.cli.resources:file_server", "File servers: create, show, list, delete"),
    "experiment": ("batchai.cli.resources:experiment", "Experiments: create, show, list, delete"),
    "job": ("batchai.cli.job:job", "Jobs: create, show, list, wait, terminate, delete; files and nodes"),
    "list-usages": ("batchai.cli.groups:list_usages", "What there is, and what of it is in use"),
}
RECIPE = {
    "group": ("batchai.cli.groups:group", "Resource groups: create, show, list, exists, delete"),
    "storage": ("batchai.cli.storage:storage", "Storage accounts, shares, directories, files, containers, blobs"),
}
COMPLETION = {"completion": ("batchai.cli.completion:completion", "Print the shell's completion script")}
AZ = {
    "batchai": ("batchai.cli.batchai:batchai", "Batch AI: workspaces, clusters, file servers, experiments, jobs"),
    **RECIPE,
    "account": ("batchai.cli.groups:account", "Says that no account is needed"),
    "login": ("batchai.cli.groups:login", "Says that no account is needed"),
    "logout": ("batchai.cli.groups:logout", "Says that no account is needed"),
}
OWN = {"batchai": {**BATCHAI, **RECIPE, **COMPLETION}, "az": {**AZ, **COMPLETION}}

_ABOUT = {
    "batchai": [
        "The command line of Azure Batch AI, on this machine and on any cluster that petctl knows.",
        "Works without an account; see docs/batchai.md for what differs.",
    ],
    "az": [
        "petctl's stand-in for the Azure command line: the verbs of Batch AI's recipes, on this machine.",
        "It is not the real az, and covers nothing else. Remove it with: petctl compat uninstall az",
    ],
}
_EXAMPLES = {
    "batchai": [
        "batchai job create -n mnist -f job.json            group, workspace, experiment: default",
        "batchai job create -n mnist -f job.json --dry-run",
        "batchai job file stream -j mnist -f stdout.txt",
        "batchai job show -n mnist --query executionState",
    ],
    "az": [
        "az group create -n recipes -l eastus",
        "az batchai workspace create -g recipes -n lab",
        "az batchai cluster create -n nc6 -g recipes -w lab -s Standard_NC6 -t 2",
        "az storage share create -n logs --account-name mystorage",
    ],
}


def overview(program: str) -> str:
    """The first page of help, as plain text."""
    verbs = OWN[program]
    lines = [f"Usage: {program} [--help] [--version] COMMAND ...", "", *(f"  {line}" for line in _ABOUT[program]), ""]
    lines += ["Verbs:", *(f"  {name:<12}{summary}" for name, (_, summary) in verbs.items()), ""]
    lines += ["Examples:", *(f"  {line}" for line in _EXAMPLES[program]), ""]
    return "\n".join([*lines, f"'{program} COMMAND --help' shows its options."])


def start(
    program: str,
    words: Sequence[str] | None,
    page: Callable[[str], str],
    root: Callable[[], Command],
    prepared: Callable[[Sequence[str]], Sequence[str]] = list,
) -> NoReturn:
    """A whole front end: one command line, then the exit code. Help and version come at once, the rest by click;
    a shell that completes a word gets neither."""
    given = list(sys.argv[1:] if words is None else words)
    if f"_{program.upper()}_COMPLETE" not in os.environ:
        if given in ([], ["--help"], ["-h"], ["help"]):
            sys.exit(_print(page(program), program))
        if given in (["--version"], ["version"]):
            from petctl import __version__

            sys.exit(_print(f"{program} of petctl {__version__}", program))
    try:
        from petctl.cli.failures import run_to_exit_code

        code = run_to_exit_code(prepared(given), root(), program)
    except KeyboardInterrupt:  # while it was still importing
        code = 130
    sys.exit(code)


def _print(text: str, program: str) -> int:
    try:
        print(text, flush=True)
    except OSError as error:
        from petctl.cli.stdout_errors import tell_unwritten

        return tell_unwritten(error, program)
    return 0
