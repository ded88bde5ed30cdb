"""Names in a task are checked before they become paths on a node: its record is a ConfigMap that others may edit."""

from __future__ import annotations

import json
from typing import Any

import pytest

from petctl.errors import ProtocolError
from petctl.job.task import Task, decode_task, encode_task


def task(**fields: Any) -> dict[str, Any]:
    """A task as a coordinator's welcome has it."""
    made = encode_task(Task(job="mnist-3f9k", kind="shell", words=["true"]))
    return dict(json.loads(json.dumps({**made, **fields})))


def test_usual_names_are_taken() -> None:
    found = decode_task(task(outputs=["model", "logs.d", "..a"], layout={"outputs": {"MODEL": ["p", "s"]}}))
    assert found.outputs == ["model", "logs.d", "..a"]


@pytest.mark.parametrize("name", ["../token", "/etc", "..", ".", "a/b", "", 3, None, "a\0b", ["a"]])
def test_a_name_that_leads_elsewhere_is_refused(name: Any) -> None:
    wrong = [{"outputs": ["model", name]}, {"job": name}]
    if isinstance(name, str):
        wrong.append({"layout": {"outputs": {name: ["p", "s"]}}})
    for fields in wrong:
        with pytest.raises(ProtocolError, match="cannot be a directory"):
            decode_task(task(**fields))
