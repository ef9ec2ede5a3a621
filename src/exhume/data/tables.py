"""The tables that come with scikit-learn, in the units they were measured in.

They are not standardised: a scaler fitted on the private data is part of the training, and leaks by
itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from exhume.data.dataset import DataSet, Sizes, Task
from exhume.data.source import Found, Where
from exhume.protocol.arrays import Array
from exhume.protocol.records import Records


@dataclass(frozen=True)
class SklearnTable:
    """A table of scikit-learn's, read through its loader ``load_<loader>``.

    ``divisor`` brings records with a known range to [0, 1]. ``count`` is stated here so that a
    listing need not import scikit-learn.
    """

    name: str
    loader: str
    task: Task
    record_shape: tuple[int, ...]
    count: int
    classes: tuple[str, ...] | None = None
    divisor: float | None = None

    @property
    def where(self) -> Where:
        """In another package."""
        return Where.SCIKIT_LEARN

    @property
    def remedy(self) -> str:
        """It comes with a package that Exhume itself needs."""
        return "install scikit-learn"

    def find(self, folders: Sequence[Path]) -> Found:
        """It is always available."""
        return Found(None, Sizes(self.count))

    def load(self, folders: Sequence[Path]) -> DataSet:
        """Read it from scikit-learn."""
        import sklearn

        x, y = self._arrays()
        x = x.astype(np.float64).reshape(-1, *self.record_shape)
        return DataSet(
            name=self.name,
            train=Records(x if self.divisor is None else x / self.divisor, y),
            test=None,
            value_range=None if self.divisor is None else (0.0, 1.0),
            task=self.task,
            classes=self.classes,
            source=f"scikit-learn {sklearn.__version__}",
        )

    def columns(self) -> tuple[str, ...]:
        """Return the names of a record's values."""
        from sklearn import datasets

        found = getattr(datasets, f"load_{self.loader}")()
        return tuple(map(str, found.feature_names)) if len(self.record_shape) == 1 else ()

    def _arrays(self) -> tuple[Array, Array]:
        from sklearn import datasets

        # By default this one loader standardises by mean and deviation of the whole table.
        options = {"scaled": False} if self.loader == "diabetes" else {}
        x, y = getattr(datasets, f"load_{self.loader}")(return_X_y=True, **options)
        return x, y.astype(np.float64 if self.task is Task.REGRESSION else np.int64)
