"""What a fitted scikit-learn estimator holds, as arrays by attribute path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from exhume.protocol.arrays import Array

_TREE = (
    *("children_left", "children_right", "feature", "threshold", "impurity", "value"),
    *("n_node_samples", "weighted_n_node_samples"),
)
_CONTAINERS = ("steps", "transformer_list")
"""Constructor arguments that hold fitted parts."""
_DEPTH = 12


def state_of(estimator: Any) -> dict[str, Array]:
    """Return every array and number that fitting left in an estimator, by attribute path.

    Settings that were given to the constructor are left out, and so are random generators and
    names. Categories are arrays of text.

    >>> from sklearn.preprocessing import StandardScaler
    >>> state = state_of(StandardScaler().fit([[1.0], [3.0]]))
    >>> float(state["mean_"][0]), int(state["n_samples_seen_"])
    (2.0, 2)
    """
    return {path: _finite(array) for path, array in _walk(estimator, "", 0)}


def parts_with(
    owner: Any, attribute: str, path: str = "", depth: int = 0
) -> Iterator[tuple[str, Any]]:
    """Yield every part of a fitted estimator that has an attribute, by its path.

    >>> from sklearn.feature_extraction.text import CountVectorizer
    >>> from sklearn.pipeline import make_pipeline
    >>> pipeline = make_pipeline(CountVectorizer()).fit(["one text"])
    >>> [path for path, _ in parts_with(pipeline, "vocabulary_")]
    ['steps.0.1']
    """
    if hasattr(owner, "fit") and attribute in getattr(owner, "__dict__", {}):
        yield path, owner
    for name, part in _parts(owner) if depth < _DEPTH else ():
        yield from parts_with(part, attribute, f"{path}.{name}" if path else name, depth + 1)


def restore(estimator: Any, state: Mapping[str, Array]) -> None:
    """Put the arrays of ``state`` into a fitted estimator, at their attribute paths.

    >>> from sklearn.preprocessing import StandardScaler
    >>> scaler = StandardScaler().fit([[1.0], [3.0]])
    >>> restore(scaler, {"mean_": np.array([5.0])})
    >>> scaler.transform([[6.0]]).tolist()
    [[1.0]]
    """
    _put(estimator, state, "", 0)


def _put(owner: Any, state: Mapping[str, Array], path: str, depth: int) -> None:
    for name, part in _parts(owner) if depth < _DEPTH else ():
        place = f"{path}.{name}" if path else name
        value: Any
        if isinstance(part, np.ndarray) and place in state:
            value = np.array(state[place], dtype=part.dtype)
        elif _is_number(part) and place in state:
            value = type(part)(state[place])
        else:
            _put(part, state, place, depth + 1)
            continue
        if isinstance(owner, list):
            owner[int(name)] = value
        elif hasattr(owner, "__dict__"):
            setattr(owner, name, value)


def _is_number(part: object) -> bool:
    return isinstance(part, float | int | np.number) and not isinstance(part, bool)


def _finite(array: Array) -> Array:
    """Return NaN as 0 and infinities as the largest numbers: a release contains neither."""
    return np.nan_to_num(array) if array.dtype.kind in "fc" else array


def _walk(value: Any, path: str, depth: int) -> Iterator[tuple[str, Array]]:
    if depth > _DEPTH or value is None or (callable(value) and not hasattr(value, "fit")):
        return
    if isinstance(value, str):
        return
    if isinstance(value, bool | int | float | np.generic):
        yield path, np.asarray(value)
    elif isinstance(value, np.ndarray):
        yield from _array(value, path, depth)
    elif hasattr(value, "toarray"):
        yield path, np.asarray(value.toarray())
    else:
        for name, part in _parts(value):
            yield from _walk(part, f"{path}.{name}" if path else name, depth + 1)


def _array(value: Array, path: str, depth: int) -> Iterator[tuple[str, Array]]:
    if value.dtype.names is not None:
        yield from ((f"{path}.{name}", value[name]) for name in value.dtype.names)
    elif value.dtype.kind != "O":
        yield path, value
    elif all(isinstance(one, str) for one in value.flat):
        yield path, value.astype(str)
    else:
        for place, one in enumerate(value.flat):
            yield from _walk(one, f"{path}.{place}", depth + 1)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the named parts of an object that may hold fitted numbers."""
    match value:
        case list() | tuple():
            yield from ((str(place), one) for place, one in enumerate(value))
        case dict():
            yield from ((str(name), one) for name, one in value.items())
        case _ if type(value).__name__ == "Tree":
            yield from ((name, np.asarray(getattr(value, name))) for name in _TREE)
        case _ if type(value).__module__.startswith("sklearn") and hasattr(value, "__dict__"):
            settings = set(value.get_params(deep=False)) if hasattr(value, "get_params") else set()
            yield from (
                (name, part)
                for name, part in vars(value).items()
                if name not in settings or name in _CONTAINERS
            )
