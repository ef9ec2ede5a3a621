"""Any scikit-learn estimator or pipeline as a mechanism: data in, fitted attributes out."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from exhume.protocol.arrays import Array
from exhume.protocol.errors import InputError
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.records import Records
from exhume.protocol.release import Weights
from exhume.protocol.schema import Schema
from exhume.training.fitted_state import restore, state_of
from exhume.training.frames import Frames


@dataclass(frozen=True, eq=False)
class Estimator(Mechanism):
    """A scikit-learn estimator, fitted to records in the order in which they are given.

    ``template`` is unfitted; its settings are public. A release holds every fitted attribute by its
    path (``steps.0.1.mean_``).
    """

    template: Any
    frames: Frames | None = None
    """Makes the frames that a pipeline reads by columns' names; None for arrays of numbers."""

    @property
    def schema(self) -> Schema | None:
        """What the entries of a record mean; None if they are plain numbers."""
        return None if self.frames is None else self.frames.schema

    def rows(self, x: Array) -> Any:
        """Return records as the estimator reads them: a frame, or an array (n, features)."""
        if self.frames is not None:
            return self.frames(x)
        return np.asarray(x, dtype=np.float64).reshape(len(x), -1)

    def publish(self, data: Records, *, rng: np.random.Generator) -> Weights:
        """Fit the estimator on ``data`` and release its fitted attributes."""
        return Weights(state_of(self.fitted(data)))

    def fitted(self, data: Records) -> Any:
        """Return a new estimator, fitted on ``data``."""
        from sklearn.base import clone

        estimator = clone(self.template)
        with warnings.catch_warnings():
            # A solver's unfinished work is part of the release.
            warnings.simplefilter("ignore")
            try:
                if data.y is None:
                    return estimator.fit(self.rows(data.x))
                return estimator.fit(self.rows(data.x), data.y)
            except (ValueError, TypeError) as error:
                reason = " ".join(str(error).split())
                raise InputError(f"{self.describe()} refuses this training: {reason}") from None

    def require_labels(self, records: Records) -> None:
        """Refuse labels that the estimator can't be fitted to, before anything is released."""
        from sklearn.base import is_regressor

        labels = records.labels
        if is_regressor(self.template) and labels.dtype.kind not in "biuf":
            raise InputError(
                f"{self.describe()} predicts numbers, but a label is {str(labels[0])!r}: code the "
                "labels as numbers, or audit a classifier"
            )
        if not self.classifies:
            return
        if labels.dtype.kind == "f" and not np.array_equal(labels, np.rint(labels)):
            first = labels[labels != np.rint(labels)][0]
            raise InputError(f"{self.describe()} predicts classes, but a label is {first:g}")
        if len(np.unique(labels)) < 2:
            raise InputError(
                f"every record has label {labels[0]}: a classifier needs at least two classes"
            )

    def steps_before(self, attributes: Mapping[str, Array], known: Records) -> Any | None:
        """Return the released steps of a pipeline before its last one; None if there are none.

        The adversary fits the steps on what it knows, and replaces their numbers by the released
        ones.
        """
        if len(getattr(self.template, "steps", ())) < 2:
            return None
        pipeline = self.fitted(known)
        restore(pipeline, attributes)
        return pipeline[:-1]

    @property
    def classifies(self) -> bool:
        """Whether labels are classes."""
        from sklearn.base import is_classifier

        return bool(is_classifier(self.template))

    @property
    def final(self) -> Any:
        """The last step of a pipeline, or the estimator itself."""
        steps = getattr(self.template, "steps", None)
        return self.template if not steps else steps[-1][1]

    def describe(self) -> str:
        """Return the name of the estimator, or the names of a pipeline's steps."""
        steps = getattr(self.template, "steps", None)
        if steps is None:
            return type(self.template).__name__
        return " → ".join(type(step).__name__ for _, step in steps)
