"""petctl import: files that are not what they should be."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from petctl.clusters.kubernetes.commands.import_ import command
from petctl.errors import UsageError

FOREIGN = Path(__file__).parents[1] / "clusters" / "kubernetes" / "foreign" / "elasticjob.yaml"


@pytest.mark.parametrize("output", ["yaml", "json"])
@pytest.mark.parametrize(
    "text, sentence",
    [
        ("kind: Pod\nspec: &all {containers: [{name: a, inside: *all}]}", "a part contains itself"),
        ("kind: Pod\nmetadata: {labels: {[1, 2]: a}}", "not YAML"),
        ("kind: Pod\nmetadata: {labels: {2020-01-02: a}}", "a part contains itself, or has no name"),
        ("[" * 5000, "not a Kubernetes object"),
        ("{", "not YAML"),
        ("", "found no job in"),
    ],
    ids=["cycle", "list as a name", "date as a name", "deep", "broken", "empty"],
)
def test_what_is_no_object_is_named(tmp_path: Path, text: str, sentence: str, output: str) -> None:
    (tmp_path / "job.yaml").write_text(text)
    done = CliRunner().invoke(command, ["-o", output, str(tmp_path / "job.yaml")])
    assert isinstance(done.exception, UsageError), done.exception
    assert sentence in str(done.exception) and str(tmp_path / "job.yaml") in str(done.exception)


@pytest.mark.parametrize("output", ["yaml", "json"])
def test_a_date_is_text_as_kubernetes_wants_it(tmp_path: Path, output: str) -> None:
    dated = "        metadata: {annotations: {since: 2020-01-02}}\n        spec:\n          restartPolicy"
    text = FOREIGN.read_text().replace("        spec:\n          restartPolicy", dated)
    (tmp_path / "job.yaml").write_text(text)
    done = CliRunner().invoke(command, ["-o", output, str(tmp_path / "job.yaml")])
    assert done.exit_code == 0, done.output
    assert ("since: '2020-01-02'" if output == "yaml" else '"since": "2020-01-02"') in done.stdout
