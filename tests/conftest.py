"""What every test is kept from: chance, other tests' cores, and the user's own cache.

And the order of the tests.
"""

from __future__ import annotations

import gc
import os
import sys
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# Collecting loads a thousand modules that stay; the collector would go through them each time.
gc.disable()

# Before any numerical library is loaded: tests run one process per core, and libraries that start
# threads of their own in each of them fight over the cores for minutes.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
# Before Flower is loaded: it reports each run to its makers where this is not set.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")

# The suite's properties have the same examples in each run: a new one is a finding, and not the
# fault of whatever is tested. EXHUME_FUZZ draws new ones. No example is judged by a clock.
settings.register_profile(
    "exhume",
    deadline=None,
    derandomize="EXHUME_FUZZ" not in os.environ,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("exhume")


def _seed_global_streams(name: str) -> None:
    """Set the streams that nobody passes on: whoever draws from them draws the same each time."""
    number = zlib.crc32(name.encode())
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(number)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(number)


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: Any, request: pytest.FixtureRequest) -> None:
    """Seed each fixture by its own name, whichever test is the first to ask for it."""
    case = getattr(request, "param_index", 0)
    _seed_global_streams(f"{fixturedef.baseid} {fixturedef.argname} {case}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Seed each test by its own name, whatever ran before it."""
    _seed_global_streams(item.nodeid)


def pytest_collection_finish() -> None:
    """Leave out of every later garbage collection what stays loaded until the end."""
    gc.freeze()
    gc.enable()


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
