"""What an estimator really is, inside searches of its settings, and what can't be audited."""

from __future__ import annotations

from typing import Any

from exhume.protocol.errors import InputError

_SEARCHES = (
    *("GridSearchCV", "RandomizedSearchCV", "HalvingGridSearchCV", "HalvingRandomSearchCV"),
    *("FixedThresholdClassifier", "TunedThresholdClassifierCV"),
)
_REFUSED = {
    "CalibratedClassifierCV": (
        "it holds several classifiers, each fitted on other folds that the record's place decides, "
        "and their calibration: audit the classifier inside it (its `estimator`)"
    ),
}


def unwrapped(estimator: Any, x: Any, y: Any) -> Any:
    """Return the unfitted estimator that a search chose: its settings are then fixed and public.

    A search that is not fitted yet is fitted once on ``x`` and ``y``. Any other estimator is
    returned as it is. InputError if nothing sound can be said of it.
    """
    from sklearn.base import clone

    name = type(estimator).__name__
    if name in _REFUSED:
        raise InputError(f"{name} is not covered; this says nothing about safety: {_REFUSED[name]}")
    if name not in _SEARCHES:
        return estimator
    if not hasattr(estimator, "best_estimator_") and not hasattr(estimator, "estimator_"):
        try:
            estimator = clone(estimator).fit(x, y)
        except (ValueError, TypeError) as error:
            reason = " ".join(str(error).split())
            raise InputError(f"{name} refuses this training: {reason}") from None
    found = getattr(estimator, "best_estimator_", None) or getattr(estimator, "estimator_", None)
    if found is None:
        raise InputError(f"{name} has no best estimator: give it refit=True")
    return unwrapped(clone(found), x, y)


def fitted_inside(estimator: Any) -> Any:
    """Return the fitted estimator that a fitted search chose; any other one as it is."""
    if type(estimator).__name__ not in _SEARCHES:
        return estimator
    found = getattr(estimator, "best_estimator_", None)
    return fitted_inside(estimator.estimator_ if found is None else found)
