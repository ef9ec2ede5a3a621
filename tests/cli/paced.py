"""The command line, held after so many stored batches: whoever stops it finds it still running."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from unittest.mock import patch

from tests.patience import PATIENCE_SECONDS

from exhume.cli import main
from exhume.runlog.outcome import Outcome
from exhume.runlog.store import Store

_LIMIT_SECONDS = 2 * PATIENCE_SECONDS
"""A test that died leaves no process behind."""


def held() -> None:
    """Run the command; before a batch more than ``PACED_BATCHES`` is stored, wait for a signal."""
    left, add = int(os.environ["PACED_BATCHES"]), Store.add_outcomes

    def paced(store: Store, outcomes: Iterable[Outcome], versions: Mapping[str, str]) -> None:
        nonlocal left
        if left == 0:
            time.sleep(_LIMIT_SECONDS)
            raise TimeoutError("nobody stopped this command")
        left -= 1
        add(store, outcomes, versions)

    with patch.object(Store, "add_outcomes", paced):
        main()
