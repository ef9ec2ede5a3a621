"""500 targets of a 10,000 × 100 logistic regression: shared work against one fit per target.

Ours: ``training.GLM.publish_each`` and ``attacks.GLM().reconstruct_each``. The naive way: one fit
with scikit-learn (newton-cholesky, tol 1e-10) and one attack per target, timed on 20 targets. Both
run on one thread, one after the other, in this process; times are processor times.

    python benchmarks/bench_glm.py
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from exhume import attacks
from exhume import sklearn as bridge
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction
from exhume.protocol.records import Records
from exhume.training import GLM, Family, Penalty

RECORDS, FEATURES, TARGETS, NAIVE_TARGETS = 10_000, 100, 500, 20
Result = TypeVar("Result")


@dataclass(frozen=True)
class Timed:
    """Milliseconds per target of each part, and the largest relative error of the answers."""

    training: float
    attack: float
    error: float

    @property
    def total(self) -> float:
        return self.training + self.attack


def main() -> None:
    data = synthetic(RECORDS + TARGETS)
    fixed_set = data.take(np.arange(RECORDS))
    targets = data.take(np.arange(RECORDS, RECORDS + TARGETS))
    # Run both once on little data, so that neither pays for imports and first calls.
    ours(fixed_set.take(np.arange(500)), targets.take(np.arange(2)))
    naive(fixed_set.take(np.arange(500)), targets.take(np.arange(2)))
    fast = ours(fixed_set, targets)
    slow = naive(fixed_set, targets.take(np.arange(NAIVE_TARGETS)))
    print(f"{TARGETS} targets, logistic regression on {RECORDS} x {FEATURES}, one thread")
    print("                 training     attack      total   max relative error")
    for name, timed in (("exhume", fast), ("one at a time", slow)):
        parts = f"{timed.training:8.2f} ms {timed.attack:8.2f} ms {timed.total:8.2f} ms"
        print(f"  {name:13s} {parts}   {timed.error:.1e}")
    print(f"  (times per target; one at a time was measured on {NAIVE_TARGETS} targets only)")
    print(f"ratio {slow.total / fast.total:.1f}")


def synthetic(count: int) -> Records:
    """Return standard normal features, with labels of a logistic model of score deviation 1."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((count, FEATURES))
    scores = x @ rng.standard_normal(FEATURES) / np.sqrt(FEATURES)
    return Records(x, (scores + rng.logistic(size=count) > 0).astype(np.int64))


def ours(fixed_set: Records, targets: Records) -> Timed:
    """Train and attack all targets together."""
    training = GLM(Family.LOGISTIC, Penalty(1.0), classes=(0, 1))
    streams = [np.random.default_rng(i) for i in range(len(targets))]
    releases, published = _timed(lambda: training.publish_each(fixed_set, targets, rngs=streams))
    knowledge = Knowledge(record_shape=targets.record_shape, training=training, fixed_set=fixed_set)
    found, attacked = _timed(
        lambda: attacks.GLM().reconstruct_each(releases, [knowledge] * len(targets), rngs=streams)
    )
    count = len(targets)
    return Timed(1e3 * published / count, 1e3 * attacked / count, _worst(found, targets))


def naive(fixed_set: Records, targets: Records) -> Timed:
    """Fit and attack one target after the other, each from scratch."""
    from sklearn.linear_model import LogisticRegression

    fitted = attacked = 0.0
    found = []
    for i in range(len(targets)):
        whole = fixed_set.with_record(targets.take([i]))
        estimator = LogisticRegression(solver="newton-cholesky", tol=1e-10)
        _, seconds = _timed(lambda e=estimator, w=whole: e.fit(w.x, w.y))
        fitted += seconds
        release = bridge.parameters(estimator)
        knowledge = Knowledge(
            record_shape=targets.record_shape,
            training=GLM(Family.LOGISTIC, Penalty(1.0), classes=(0, 1)),
            fixed_set=fixed_set,
        )
        result, seconds = _timed(
            lambda r=release, k=knowledge: attacks.GLM().reconstruct(r, k, rng=0)
        )
        attacked += seconds
        found.append(result)
    count = len(targets)
    return Timed(1e3 * fitted / count, 1e3 * attacked / count, _worst(found, targets))


def _timed(work: Callable[[], Result]) -> tuple[Result, float]:
    start = time.process_time()
    result = work()
    return result, time.process_time() - start


def _worst(found: Sequence[Reconstruction], targets: Records) -> float:
    gaps = [
        np.linalg.norm(one.samples[0] - x) / np.linalg.norm(x) if len(one) else np.inf
        for one, x in zip(found, targets.x, strict=True)
    ]
    return float(max(gaps))


if __name__ == "__main__":
    with threadpool_limits(limits=1):
        main()
