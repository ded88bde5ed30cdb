"""Whatever a file holds, reading it ends with a job or a SpecError; and the JSON reader agrees with Python's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from petctl.errors import SpecError
from petctl.job.file.json_text import parse_json
from petctl.job.file.read import FILE_FIELDS, job_from_dict, read_job
from petctl.job.spec import Job
from petctl.job.spec.document import Builder

SYNTAX = [": ", ":", "- ", "\n", "\n  ", "[", "]", "{", "}", ",", '"', "'", "|", ">", "&a ", "*a", "!!int ", "#", "<<"]
SYNTAX += ["~", "?", "\t", "\x85", "\u2028", "\ufeff", "%YAML 1.1\n", "---\n"]
PIECES = [*FILE_FIELDS, *SYNTAX, "null", "1:3", "0", "-1", "2h", "a.py", "${X}", "$${X}", "${", "X\rY"]
FILES = st.one_of(st.lists(st.sampled_from(PIECES), max_size=30).map("".join), st.text(max_size=60)).map(
    lambda text: text.encode("utf-8", "surrogatepass")
)


@settings(max_examples=400, deadline=None)
@given(content=st.one_of(FILES, st.binary(max_size=60)), name=st.sampled_from(["job.yaml", "job.json"]))
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, content: bytes, name: str) -> None:
    path = Path(tmp_path_factory.getbasetemp(), name)
    path.write_bytes(content)
    try:
        assert isinstance(read_job(path, {"X": "1"}), Job)
    except SpecError as error:
        assert all(line.startswith(str(path)) for line in str(error).splitlines())


NUMBERS = st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False))
SCALARS = st.one_of(st.none(), NUMBERS, st.text())
TREES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))
VALUES = st.one_of(st.sampled_from(["1:3", "a.py", "2h", 3, "gpu"]), TREES)


@settings(deadline=None)  # a busy machine is not a failure
@given(st.dictionaries(st.sampled_from(FILE_FIELDS), VALUES, max_size=6))
def test_any_values(data: dict[str, Any]) -> None:
    before = json.dumps(data)
    try:
        assert isinstance(job_from_dict(data), Job)
    except SpecError as error:
        assert all(line.startswith("job: ") for line in str(error).splitlines())
    assert json.dumps(data) == before


def as_texts(value: Any) -> Any:
    """What a document makes of a JSON value: everything but structure and null is text, as it was written."""
    if isinstance(value, dict):
        return {name: as_texts(item) for name, item in value.items()}
    if isinstance(value, list):
        return [as_texts(item) for item in value]
    return value if value is None or isinstance(value, str) else json.dumps(value)


@settings(deadline=None)  # a busy machine is not a failure
@given(TREES, st.sampled_from([None, 2, "\t"]), st.booleans())
def test_json_is_read_as_python_reads_it(value: Any, indent: Any, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert parse_json(text, Builder("job.json")).root == as_texts(value)


def test_a_large_file_of_another_kind(tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    path.write_text(json.dumps({f"record {number}": number for number in range(40_000)}))
    with pytest.raises(SpecError) as caught:
        read_job(path)
    assert "40000 unknown fields in all; is this a job file?" in str(caught.value)
    assert len(str(caught.value).splitlines()) < 30
