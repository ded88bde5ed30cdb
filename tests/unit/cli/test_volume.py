"""petctl volume: what it prints, and what it refuses."""

from __future__ import annotations

import json

import pytest
import yaml
from click.testing import CliRunner

from petctl.clusters.kubernetes.commands.volume import command
from petctl.errors import UsageError

NFS = ["--kind", "nfs", "--id", "files.example.org:/export", "data"]


def test_yaml_and_json_say_the_same() -> None:
    written, plain = (CliRunner().invoke(command, ["-o", output, *NFS]) for output in ("yaml", "json"))
    objects = list(yaml.safe_load_all(written.stdout))
    assert [one["kind"] for one in objects] == ["StorageClass", "PersistentVolume"]
    assert json.loads(plain.stdout)["items"] == objects
    assert "volumes: [{claim: data, path: /data, size: 100Gi, storage_class: data}]" in written.stderr


@pytest.mark.parametrize(
    "size, sentence", [("", "must be above zero"), ("0", "must be above zero"), ("much", "expected a size such as")]
)
def test_what_is_no_size_is_refused_by_name(size: str, sentence: str) -> None:
    done = CliRunner().invoke(command, ["--size", size, *NFS])
    assert isinstance(done.exception, UsageError)
    assert str(done.exception).startswith(f"--size {size}: {sentence}")
