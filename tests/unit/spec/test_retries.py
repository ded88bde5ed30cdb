"""Which exit codes a job is restarted from: what people may write, and what the model holds."""

from __future__ import annotations

import pytest

from petctl.errors import SpecError
from petctl.spec import Job, job_from_dict, job_to_dict
from petctl.spec.retries import retried_codes, retry_on


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
        ([0], "from 1 to 255"),
        ([256], "from 1 to 255"),
        ([-9], "from 1 to 255"),
        (["5-3"], "got '5-3'"),
        (["1-2-3"], "got '1-2-3'"),
        ([None], "got nothing"),
        (True, "expected a list of exit codes, got True"),
        ({"3": 1}, "expected a list of exit codes, got a mapping"),
    ],
)
def test_anything_else_is_refused_in_words(written: object, part: str) -> None:
    with pytest.raises(SpecError) as error:
        Job(script="a.py", retry_on=written)  # type: ignore[arg-type]
    assert str(error.value).startswith("retry_on") and part in str(error.value)


def test_every_wrong_entry_is_named() -> None:
    with pytest.raises(SpecError) as error:
        job_from_dict({"script": "a.py", "retry_on": ["3", "x", "999"]})
    assert [line.split(":")[1].strip() for line in str(error.value).splitlines()] == ["retry_on[1]", "retry_on[2]"]


def test_a_job_file_holds_numbers_and_words() -> None:
    job = Job(script="a.py", retry_on=["signals", 4, "128-130"])
    assert job_to_dict(job)["retry_on"] == [4, "128-130", "signals"]
    assert job_from_dict(job_to_dict(job)) == job
