"""Which failures a job is restarted from: what people may write, and what the model holds."""

from __future__ import annotations

import pytest

from petctl.errors import SpecError
from petctl.job.file.read import job_from_dict
from petctl.job.file.write import job_to_dict
from petctl.job.spec import Job
from petctl.job.spec.retries import retried_causes, retried_codes, retry_on
from petctl.submission.task import config_of


@pytest.mark.parametrize(
    ("written", "held", "codes"),
    [
        ([], [], ()),
        ("", [], ()),
        (3, ["3"], ((3, 3),)),
        ([3, "128-255", "signals"], ["3", "128-255", "signals"], ((3, 3), (128, 255), (129, 192))),
        ("signals, 20-30 7", ["7", "20-30", "signals"], ((7, 7), (20, 30), (129, 192))),
        (["9", "03", "9-9"], ["3", "9"], ((3, 3), (9, 9))),
        (["143,137"], ["137", "143"], ((137, 137), (143, 143))),
    ],
)
def test_codes_in_one_order_and_one_way(written: object, held: list[str], codes: tuple[tuple[int, int], ...]) -> None:
    assert retry_on(written) == held
    assert retry_on(held) == held
    assert retried_codes(held) == codes


@pytest.mark.parametrize(
    ("written", "part"),
    [
        (["signal"], "did you mean 'signals'?"),
        (["netwrok"], "did you mean 'network'?"),
        (["transients"], "did you mean 'transient'?"),
        (["Network"], "got 'Network'"),
        ([0], "from 1 to 255"),
        ([256], "from 1 to 255"),
        ([-9], "from 1 to 255"),
        (["5-3"], "got '5-3'"),
        (["1-2-3"], "got '1-2-3'"),
        ([None], "got nothing"),
        (True, "expected a list of exit codes and causes, got True"),
        ({"3": 1}, "expected a list of exit codes and causes, got a mapping"),
    ],
)
def test_anything_else_is_refused_in_words(written: object, part: str) -> None:
    with pytest.raises(SpecError) as error:
        Job(script="a.py", retry_on=written)  # type: ignore[arg-type]
    assert str(error.value).startswith("retry_on") and part in str(error.value)


def test_causes_stand_beside_codes_and_a_group_is_what_it_holds() -> None:
    held = retry_on("transient, 3, no-space,signals ecc")
    assert held == ["3", "ecc", "no-space", "signals", "transient"] == retry_on(held)
    assert retried_codes(held) == ((3, 3), (129, 192))
    named = retried_causes(held)
    assert named[:2] == ("ecc", "no-space") and {"network", "hang"} < set(named) and len(named) == len(set(named))
    assert retried_causes(["3", "signals"]) == () and retried_codes(["network"]) == ()
    job = Job(script="a.py", retry_on=held)
    assert job_from_dict(job_to_dict(job)) == job
    config = config_of(job)
    assert (config.retry_on, config.retry_causes) == (retried_codes(held), named)


def test_every_wrong_entry_is_named() -> None:
    with pytest.raises(SpecError) as error:
        job_from_dict({"script": "a.py", "retry_on": ["3", "x", "999"]})
    assert [line.split(":")[1].strip() for line in str(error.value).splitlines()] == ["retry_on[1]", "retry_on[2]"]


def test_a_job_file_holds_numbers_and_words() -> None:
    job = Job(script="a.py", retry_on=["signals", 4, "128-130"])
    assert job_to_dict(job)["retry_on"] == [4, "128-130", "signals"]
    assert job_from_dict(job_to_dict(job)) == job
