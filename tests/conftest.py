"""What every test is kept from: other tests' cores, and the user's own cache; and their order."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

# Before any numerical library is loaded: tests run one process per core, and libraries that start
# threads of their own in each of them fight over the cores for minutes.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
# Before Flower is loaded: it reports each run to its makers where this is not set.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that have slow tests, so that parallel workers end together."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep shadow models in a folder of the session's own, commands in other processes too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EXHUME_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
