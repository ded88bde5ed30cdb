"""Building: what is refused before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from petctl.act.building import build
from petctl.act.config import Config
from petctl.act.pins import last_pin
from petctl.errors import UsageError


def test_without_a_script_the_code_is_pinned_and_nothing_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PETCTL_HOME", str(tmp_path / "home"))
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    Path("train.py").write_text("")
    said: list[str] = []
    with pytest.raises(UsageError, match=r"there is no compile.aml.sh in .*project, so there is nothing to build"):
        build(Config(), say=said.append)
    pinned = last_pin(Config())
    assert pinned is not None and said == [pinned.sentence()]
