"""Builds the Helm chart: charts/petctl-operator with the operator's archive and the definition of ElasticJobs in it.

    python charts/build.py [DIRECTORY]        petctl-operator-VERSION.tgz; `make chart` puts it into build/charts

Both are made from the package, so that nothing that can be made is in the repository. The same sources give the same
file. Helm is not needed for this.
"""

from __future__ import annotations

import gzip
import io
import sys
import tarfile
from pathlib import Path

import yaml

import petctl
from petctl.clusters.agent_archive import operator_bytes
from petctl.clusters.kubernetes.operator.install.objects import ARCHIVE, UNPACKED, definition

SOURCE = Path(__file__).parent / "petctl-operator"


def contents() -> dict[str, bytes]:
    """Path in the chart -> what it holds."""
    files = {path.relative_to(SOURCE).as_posix(): path.read_bytes() for path in SOURCE.rglob("*") if path.is_file()}
    crd, *_ = definition()
    files[f"crds/{crd['metadata']['name']}.yaml"] = yaml.safe_dump(crd, sort_keys=False, width=120).encode()
    files[f"files/{ARCHIVE}"] = operator_bytes(UNPACKED)
    return files


def build(directory: Path) -> Path:
    """Writes the chart there; where it is."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, data in sorted(contents().items()):
            entry = tarfile.TarInfo(f"{SOURCE.name}/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    target = directory / f"{SOURCE.name}-{petctl.__version__}.tgz"
    directory.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.compress(packed.getvalue(), mtime=0))
    return target


if __name__ == "__main__":
    print(build(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
