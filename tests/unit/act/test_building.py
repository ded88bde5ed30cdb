"""Building: what is refused before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from petctl.compat.act import build as building
from petctl.compat.act.build import build
from petctl.compat.act.config.config import Config
from petctl.compat.act.pins import last_pin
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


def test_a_build_that_nobody_waits_for_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Building:
        id, cancelled = "build", 0

        def logs(self, follow: bool) -> NoReturn:
            raise KeyboardInterrupt

        def cancel(self) -> None:
            self.cancelled += 1

    job = Building()
    monkeypatch.setattr(building, "submit", lambda *_, **__: job)
    monkeypatch.setenv("PETCTL_HOME", str(tmp_path / "home"))
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    Path("compile.aml.sh").write_text("")
    said: list[str] = []
    with pytest.raises(UsageError, match="a quote is not closed"):
        build(Config(), "it's", say=said.append)
    assert said == []
    with pytest.raises(KeyboardInterrupt):
        build(Config(), say=said.append)
    assert job.cancelled == 1 and last_pin(Config()) is not None
