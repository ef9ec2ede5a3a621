"""What every test is kept from: other tests' cores, and the user's own cache."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

# Before any numerical library is loaded: tests run a process a core, and libraries that start
# threads of their own in each of them fight over the cores for minutes.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep shadow models in a folder of the session's own, commands in other processes too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EXHUME_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
