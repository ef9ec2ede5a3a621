"""What every test is kept from: the user's own cache."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep shadow models in a folder of the session's own, commands in other processes too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EXHUME_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
