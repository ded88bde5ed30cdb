"""batchai experiment: create, show, list, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from petctl.compat.batchai.cli import options
from petctl.compat.batchai.cli.base_command import group, leaf
from petctl.compat.batchai.cli.crud import Resource, add_usual_verbs

if TYPE_CHECKING:
    from petctl.compat.batchai.service.names import Address

NAME = ("-n", "--name", "-e", "--experiment")
experiment = group("experiment", "Experiments: what jobs are in.")


def _row(found: Any) -> dict[str, Any]:
    workspace = found["id"].split("/")[8]
    return {"Name": found["name"], "Resource Group": found["resourceGroup"], "Workspace": workspace}


@leaf(experiment, "create", "batchai experiment create -g recipes -w lab -n chainer", row=_row)
@options.addressed("experiments", *NAME)
def create(address: Address) -> object:
    """Make an experiment."""
    from petctl.compat.batchai.service import report
    from petctl.compat.batchai.service.resources import create_experiment

    return report.experiment(address, create_experiment(options.home(), address))


def _shown(address: Address) -> object:
    from petctl.compat.batchai.service import report

    return report.experiment(address, options.record("experiments", address)[1])


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
