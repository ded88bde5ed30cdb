"""Point mutants apply to the source as it is now; `make mutate` runs the tests against each of them."""

from __future__ import annotations

import pytest

from tests.simulation.mutate import POINT_MUTANTS, RENDEZVOUS, ROOT, TESTS, PointMutant


@pytest.mark.parametrize("mutant", POINT_MUTANTS, ids=lambda mutant: f"{mutant.module}-{mutant.name}".replace(" ", "-"))
def test_every_point_mutant_still_applies(mutant: PointMutant) -> None:
    source = (ROOT / RENDEZVOUS / f"{mutant.module}.py").read_text()
    broken = mutant.apply(source)
    assert broken != source
    compile(broken, mutant.module, "exec")


def test_point_mutants_have_names_of_their_own() -> None:
    names = [(mutant.module, mutant.name) for mutant in POINT_MUTANTS]
    assert len(names) == len(set(names))


def test_the_tests_that_kill_mutants_exist() -> None:
    assert [name for name in TESTS if not (ROOT / name).is_file()] == []
