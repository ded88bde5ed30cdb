"""What a job may say to a debug cluster: `options: {debug: {...}}`, or -O."""

from __future__ import annotations

from typing import Annotated

from petctl.job.spec.options import Options


class DebugOptions(Options, frozen=True):
    """Options of debug clusters."""

    start_delay: Annotated[float, "Seconds that a job waits before it starts."] = 0.0


OPTIONS = DebugOptions
