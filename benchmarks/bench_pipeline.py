"""500 targets of a 50,000 × 100 logistic pipeline: shared work against one fit per target.

The front door: ``exhume.sklearn.audit`` of the pipeline, from the arrays to the report, after a
small audit that loads everything. Its parts: ``training.GLM.publish_each`` with ``standardise``,
then the two attacks of the audit, ``ScalerMoments`` and ``GLM``. One at a time: StandardScaler and
LogisticRegression of scikit-learn (newton-cholesky, tol 1e-10, which ends at the optimum), on five
targets. Below it the fit alone with scikit-learn's default solver, which ends before the optimum.
One thread, processor times.

    python benchmarks/bench_pipeline.py
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

import exhume
from exhume import attacks
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction
from exhume.protocol.records import Records
from exhume.training import GLM, Family, Penalty

RECORDS, FEATURES, TARGETS, ONE_AT_A_TIME = 50_000, 100, 500, 5
Result = TypeVar("Result")


def main() -> None:
    """Print milliseconds per target and the ratio."""
    data = table(RECORDS + TARGETS)
    fixed_set = data.take(slice(0, RECORDS))
    targets = data.take(slice(RECORDS, None))
    ours(data.take(slice(0, 400)), data.take(slice(400, 402)))
    audited(data.take(slice(0, 420)), 20)
    whole = audited(data, TARGETS)
    fitted, attacked, error = ours(fixed_set, targets)
    print(f"{TARGETS} targets, StandardScaler and logistic regression on {RECORDS} x {FEATURES}")
    print(f"  exhume: {fitted:.2f} ms to fit, {attacked:.2f} ms to attack per target; ", end="")
    print(f"largest relative error {error:.1e}")
    print(f"  exhume.sklearn.audit, all of it: {whole:.2f} ms per target")
    optimal = one_fit(fixed_set, targets, solver="newton-cholesky", tol=1e-10)
    default = one_fit(fixed_set, targets)
    print(f"  one fit per target, to the optimum: {optimal:.0f} ms")
    print(f"  one fit per target, default solver: {default:.0f} ms, without an attack")
    print(f"ratio of the audit {optimal / whole:.1f}, of its fits and attacks ", end="")
    print(f"{optimal / (fitted + attacked):.1f}")
    print(f"ratio to the default solver's unfinished fit {default / (fitted + attacked):.1f}")


def table(count: int) -> Records:
    """Return columns in units of their own, with labels of a logistic model."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((count, FEATURES))
    scores = x @ rng.standard_normal(FEATURES) / np.sqrt(FEATURES)
    labels = (scores + rng.logistic(size=count) > 0).astype(np.int64)
    return Records(x * rng.uniform(0.5, 5.0, FEATURES) + rng.normal(size=FEATURES), labels)


def audited(data: Records, targets: int) -> float:
    """Return milliseconds per target of an audit of the pipeline, from arrays to the report."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    pipeline = make_pipeline(StandardScaler(), LogisticRegression())
    with TemporaryDirectory() as folder:
        work = partial(exhume.sklearn.audit, pipeline, data.x, data.labels, quiet=True)
        run, seconds = timed(lambda: work(targets=targets, out=Path(folder) / "run"))
        (bracket,) = run.summary.brackets
        if bracket.reached.successes != targets:
            raise RuntimeError(f"only {bracket.reached.successes} of {targets} rebuilt")
    return 1e3 * seconds / targets


def ours(fixed_set: Records, targets: Records) -> tuple[float, float, float]:
    """Return milliseconds per target to fit and to attack, and the largest relative error."""
    training = GLM(Family.LOGISTIC, Penalty(1.0), classes=(0, 1), standardise=True)
    rngs = [np.random.default_rng(i) for i in range(len(targets))]
    releases, fitted = timed(lambda: training.publish_each(fixed_set, targets, rngs=rngs))
    told = Knowledge(record_shape=targets.record_shape, training=training, fixed_set=fixed_set)
    attacked, error = 0.0, 0.0
    for attack in (attacks.ScalerMoments(), attacks.GLM()):
        found, seconds = timed(
            lambda one=attack: one.reconstruct_each(releases, [told] * len(targets), rngs=rngs)
        )
        attacked, error = attacked + seconds, max(error, worst(found, targets))
    return 1e3 * fitted / len(targets), 1e3 * attacked / len(targets), error


def one_fit(fixed_set: Records, targets: Records, **settings: str | float) -> float:
    """Return milliseconds per target of scikit-learn's own fits, from scratch."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    spent = 0.0
    for place in range(ONE_AT_A_TIME):
        whole = fixed_set.with_record(targets.take([place]))
        pipeline = make_pipeline(StandardScaler(), LogisticRegression(**settings))
        spent += timed(lambda p=pipeline, w=whole: p.fit(w.x, w.y))[1]
    return 1e3 * spent / ONE_AT_A_TIME


def timed(work: Callable[[], Result]) -> tuple[Result, float]:
    """Return a result and its processor time."""
    start = time.process_time()
    result = work()
    return result, time.process_time() - start


def worst(found: Sequence[Reconstruction], targets: Records) -> float:
    """Return the largest relative error of the best candidates."""
    return max(
        float(np.linalg.norm(one.samples[0] - x) / np.linalg.norm(x)) if len(one) else np.inf
        for one, x in zip(found, targets.x, strict=True)
    )


if __name__ == "__main__":
    with threadpool_limits(limits=1):
        main()
