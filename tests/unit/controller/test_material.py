"""Names in a job's record are checked before they become paths: whoever may edit a ConfigMap can write any."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from petctl.controller.job_files import Material
from petctl.errors import UsageError
from tests.unit.records import job_record


def material(directory: Path, secrets: dict[str, object]) -> Material:
    (directory / "secrets").mkdir(parents=True)
    (directory / "secrets" / "hf-token").write_text("value")
    (directory / "token").write_text("the job's own")
    record = {**job_record().to_dict(), "secrets": secrets}
    (directory / "job.json").write_text(json.dumps(record))
    return Material(directory)


def test_a_secret_by_its_name(tmp_path: Path) -> None:
    assert material(tmp_path, {"HF_TOKEN": "hf-token"}).secret_values() == {"HF_TOKEN": "value"}


@pytest.mark.parametrize("name", ["../token", "/etc/passwd", "..", ".hidden", "a/b", "", "a\0b"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: object) -> None:
    with pytest.raises(UsageError, match="is not the name of a secret"):
        material(tmp_path, {"X": name}).secret_values()


@pytest.mark.parametrize("name", [3, None, ["hf-token"]])
def test_what_cannot_be_a_name_damages_the_record(tmp_path: Path, name: object) -> None:
    with pytest.raises(UsageError, match=r"job\.json is not the record of a job \(secrets: must be str"):
        material(tmp_path, {"X": name})
