"""Words of older programs, and kinds of clusters that there are not: the advice leads to what there is."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from petctl.cli.group import OF_OLDER_PROGRAMS, petctl
from petctl.clusters.base import find_cluster
from petctl.errors import UsageError

MIGRATING = Path(__file__).parents[3] / "docs" / "migrating.md"


@pytest.mark.parametrize("verb", sorted(OF_OLDER_PROGRAMS))
def test_an_old_verb_leads_to_the_page_that_tells_its_new_name(verb: str) -> None:
    assert f"`{verb}" in MIGRATING.read_text()
    told = CliRunner().invoke(petctl, [verb, "--name", "x"])
    assert told.exit_code == 2
    assert "docs/migrating.md" in told.output


def test_another_kind_of_cluster_is_not_made_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as refusal:
        find_cluster("aws", tmp_path)
    assert "cluster create" not in str(refusal.value) and "-c k8s" in str(refusal.value)
    with pytest.raises(UsageError, match="create one on this machine: petctl cluster create team"):
        find_cluster("team", tmp_path)
