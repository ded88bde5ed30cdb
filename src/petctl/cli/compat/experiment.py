"""batchai experiment: create, show, list, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from petctl.cli.compat import words
from petctl.cli.compat.frame import group, leaf
from petctl.cli.compat.usual import Resource, add_usual_verbs

if TYPE_CHECKING:
    from petctl.batchai.names import Address

NAME = ("-n", "--name", "-e", "--experiment")
experiment = group("experiment", "Experiments: what jobs are in.")


def _row(found: Any) -> dict[str, Any]:
    workspace = found["id"].split("/")[8]
    return {"Name": found["name"], "Resource Group": found["resourceGroup"], "Workspace": workspace}


@leaf(experiment, "create", "batchai experiment create -g recipes -w lab -n chainer", row=_row)
@words.addressed("experiments", *NAME)
def create(address: Address) -> object:
    """Make an experiment."""
    from petctl.batchai import reported
    from petctl.batchai.resources import create_experiment

    return reported.experiment(address, create_experiment(words.home(), address))


def _shown(address: Address) -> object:
    from petctl.batchai import reported

    return reported.experiment(address, words.record("experiments", address)[1])


add_usual_verbs(
    experiment,
    Resource(
        "experiments",
        "experiment",
        NAME,
        _row,
        _shown,
        place="-g recipes -w lab",
        name="chainer",
        along=" with its jobs, which are ended first",
    ),
)
