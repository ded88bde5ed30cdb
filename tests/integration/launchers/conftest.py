"""Jobs of this directory's tests run on the local cluster, as those of `tests/integration/local` do."""

from __future__ import annotations

from tests.integration.local.conftest import stage

__all__ = ["stage"]
