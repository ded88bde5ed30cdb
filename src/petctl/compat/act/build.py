"""`initc`: compile.aml.sh runs once, where the runs' image or this machine can build, and what it made is pinned.

    pin, publish  ->  a job of its own on this machine: the pinned code, its requirements, compile.aml.sh
                  ->  its copy of the code, built  ->  pin, publish

The code as it is is pinned first, so that runs can start meanwhile. A build that fails leaves that pin, and the job
with its logs; one that ends well leaves nothing but the pin. Runs of built code do not build again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from petctl.bundle.bundle_cache import Cabinet
from petctl.bundle.ignore import OWN_FILE
from petctl.bundle.snapshot import Snapshot, take
from petctl.compat.act.compile import RunRequest, compile_line, job_of, keep_password
from petctl.compat.act.config.config import Config
from petctl.compat.act.engines import without_missing_engine
from petctl.compat.act.pins import COMPILE, REQUIREMENTS, Pin, Progress, keep, last_pin, pin_tree, snapshot_of
from petctl.compat.act.published import publish
from petctl.compat.act.runs import to_stderr
from petctl.errors import PetctlError, UsageError
from petctl.home import petctl_home
from petctl.job.spec import Job
from petctl.jobs import JobHandle, submit
from petctl.kinds import DEFAULT
from petctl.submission.code import code_record

_TREE = "tree"


def build(
    config: Config,
    compile_args: str | None = None,
    say: Callable[[str], None] = to_stderr,
    progress: Progress | None = None,
) -> Pin:
    """Pins the code, builds it, pins what was built."""
    line = compile_line(config.compile_args if compile_args is None else compile_args)
    tree = snapshot_of(config)
    raw = pin_tree(config, tree, progress)
    say(raw.sentence())
    _publish(config, raw, say)
    if COMPILE not in raw.special:
        raise UsageError(
            f"there is no {COMPILE} in {config.root}, so there is nothing to build; pinning the code as it is"
        )
    here = without_missing_engine(replace(config, cluster=DEFAULT), say)
    handle = _started(here, raw, line)
    say(f"building in the job {handle.id}" + (f", in the image {here.image}" if here.image else ""))
    try:
        for said in handle.logs(follow=True):
            say(said.text.decode(errors="replace").rstrip("\n"))
        status = handle.wait()
    except BaseException:  # without this process nobody pins what it makes
        with suppress(PetctlError):
            handle.cancel()
        raise
    if status.state != "succeeded":
        raise PetctlError(
            f"{COMPILE} has failed: {status.sentence}. Runs use the code as it is, which was pinned first; the "
            f"build's logs: petctl logs {handle.id}"
        )
    now = last_pin(config)
    if now is None or now.id != raw.id:
        raise PetctlError(f"other code was pinned while {COMPILE} ran; keeping that and discarding the build")
    made = _pinned(config, raw, tree, Path(handle.outputs()[0].location, _TREE))
    say(f"built; {made.sentence()}")
    _publish(config, made, say)
    handle.remove()
    return made


def _publish(config: Config, pinned: Pin, say: Callable[[str], None]) -> None:
    location = publish(config, pinned)
    if location:
        say(f"sent to {location}")


def _started(config: Config, raw: Pin, line: str) -> JobHandle:
    """The job that builds: where runs would be, as far as this machine can be that, but without their folders."""
    like = job_of(config, RunRequest(["true"], num_gpu=0), raw.code)
    keep_password(config)
    job = Job(
        shell=f'{line} && cp -a . "$PETCTL_OUTPUT_DIR/{_TREE}"',
        name="act-build",
        env=like.env,
        image=like.image,
        image_credentials=like.image_credentials,
        requirements=REQUIREMENTS if REQUIREMENTS in raw.special else "",
        folders="none",
        store="none",
        restarts=0,
    )
    # Nothing that it writes may end up in the project: what the snapshot leaves out is not linked.
    return submit(job, DEFAULT, code={**raw.code, "links": {}})


def _pinned(config: Config, raw: Pin, tree: Snapshot, built: Path) -> Pin:
    (built / OWN_FILE).unlink(missing_ok=True)  # what it keeps out is what was built
    snapshot = take(built, allow_secrets=["*"], gitignore=False)  # the project was looked at before
    archive = Cabinet(petctl_home() / "bundles").put(snapshot)
    code = code_record(snapshot, archive, raw.code["source"], raw.code["project"], raw.code["links"])
    return keep(config, snapshot, code, tree)
