"""Fitted scikit-learn estimators in files: skops' format, which runs no code when it is read."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from exhume.data.reading import explained, listed, require_file
from exhume.protocol.errors import InputError

SKOPS = ".skops"
PICKLES = (".pkl", ".pickle", ".joblib")
_KIND = "a skops file"
_OWN = (
    *("sklearn.tree._", "sklearn.ensemble._hist_gradient_boosting.", "sklearn._loss."),
    *("sklearn.neighbors._", "sklearn.linear_model._", "sklearn.metrics._dist_metrics."),
    *("sklearn.metrics._scorer.", "sklearn.model_selection._split.", "sklearn.calibration._"),
    *("sklearn.neural_network._stochastic_optimizers.", "sklearn.gaussian_process."),
    *("sklearn.feature_selection._univariate_selection.", "sklearn.cluster._"),
    *("numpy.dtype", "numpy.mean", "scipy.sparse._csr."),
)
"""Where scikit-learn keeps compiled parts and parts of searches, which skops asks about."""


def read_estimator(path: Path) -> Any:
    """Return the fitted estimator in a .skops file, if all its types are scikit-learn's or NumPy's.

    InputError if it holds anything else: no code of the file's own is ever run.
    """
    refuse_pickle(path)
    require_file(path, _KIND)
    io = _skops()
    with explained(path, _KIND):
        asked = io.get_untrusted_types(file=path)
        strangers = [name for name in asked if not name.startswith(_OWN)]
        if strangers:
            raise InputError(
                f"{path}: holds {listed(strangers)}, which is neither scikit-learn's nor NumPy's "
                "and is not loaded; name a function that builds the estimator instead: "
                'release.estimator = "package.module:function"'
            )
        found = io.load(path, trusted=asked)
    if not hasattr(found, "fit") or not hasattr(found, "get_params"):
        raise InputError(f"{path}: holds a {type(found).__name__}, not a scikit-learn estimator")
    return found


def write_estimator(path: Path, estimator: Any) -> None:
    """Write a fitted estimator with all its settings, readable by its owner only."""
    from exhume.runtime.durable import write_bytes

    write_bytes(path, _skops().dumps(estimator))


def refuse_pickle(path: Path) -> None:
    """Refuse a pickle, with the two lines that make a file of it that runs no code."""
    if path.suffix.lower() not in PICKLES:
        return
    lines = "\n  ".join(converted(path))
    raise InputError(
        f"{path} is refused: loading a pickle runs the code in it. If you trust it, convert it "
        f"in Python:\n  {lines}"
    )


def converted(path: Path) -> tuple[str, str]:
    """Return the two lines of Python that make a .skops file of a pickle.

    >>> converted(Path("model.joblib"))[1]
    'exhume.sklearn.save(joblib.load("model.joblib"), "model.skops")'
    """
    module = "joblib" if path.suffix.lower() == ".joblib" else "pickle"
    source = f'"{path.name}"' if module == "joblib" else f'open("{path.name}", "rb")'
    loaded = f"{module}.load({source})"
    return f"import {module}, exhume", f'exhume.sklearn.save({loaded}, "{path.stem}{SKOPS}")'


def _skops() -> Any:
    if find_spec("skops") is None:
        raise InputError("a .skops file needs skops: pip install exhume[skops]")
    import skops.io

    return skops.io
