"""The time of one exact ceiling: shared, recomputed, and through dp-accounting's own PLDs.

    python benchmarks/bench_rero.py

1,000 points (noise multiplier, sampling rate, steps, kappa): 50 trainings at 20 kappas each. The
three ways run on the same points in one process; dp-accounting runs only on the first kappa of
every tenth training, because it is slow. Times are CPU seconds per point; the ratios matter.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import dp_accounting as dp
import numpy as np
from dp_accounting.pld import PLDAccountant
from dp_accounting.privacy_accountant import NeighboringRelation
from numpy.typing import NDArray

from exhume import bounds
from exhume.bounds import accounting, discretise

KAPPAS = np.geomspace(1e-4, 0.5, 20)


@dataclass(frozen=True)
class Training:
    noise_multiplier: float
    sample_rate: float
    steps: int

    @property
    def event(self) -> dp.DpEvent:
        return bounds.dp_sgd(self.noise_multiplier, self.sample_rate, self.steps)


def trainings(count: int) -> list[Training]:
    rng = np.random.default_rng(0)
    return [
        Training(
            float(np.exp(rng.uniform(np.log(0.6), np.log(5.0)))),
            float(np.exp(rng.uniform(np.log(1e-3), np.log(0.2)))),
            int(np.exp(rng.uniform(np.log(10), np.log(10_000)))),
        )
        for _ in range(count)
    ]


def shared(training: Training) -> NDArray[np.float64]:
    """Compute all kappas from one distribution."""
    accounting._loss_under.cache_clear()
    loss = bounds.privacy_loss(training.event)
    assert loss is not None
    return loss.gamma(KAPPAS)


def recomputed(training: Training) -> NDArray[np.float64]:
    """Compute the distribution again for every kappa."""
    found = []
    for kappa in KAPPAS:
        accounting._loss_under.cache_clear()
        loss = bounds.privacy_loss(training.event)
        assert loss is not None
        found.append(float(loss.gamma(kappa)))
    return np.array(found)


def by_dp_accounting(training: Training) -> NDArray[np.float64]:
    """Compute one kappa from the accountant's distribution at its default interval."""
    relation = NeighboringRelation.ADD_OR_REMOVE_ONE
    assert PLDAccountant(relation).supports(training.event)
    loss = discretise.from_accountant(training.event, relation, 1e-4)
    return loss.gamma(KAPPAS[:1])


def seconds_a_point(
    way: Callable[[Training], NDArray[np.float64]], over: list[Training]
) -> tuple[float, list[NDArray[np.float64]]]:
    start = time.process_time()
    found = [way(training) for training in over]
    return (time.process_time() - start) / sum(map(len, found)), found


def main() -> None:
    over = trainings(50)
    shared(over[0])  # warm-up: imports are not measured
    fast, gammas = seconds_a_point(shared, over)
    slow, again = seconds_a_point(recomputed, over)
    peer, theirs = seconds_a_point(by_dp_accounting, over[::10])
    np.testing.assert_array_equal(gammas, again)
    ours = np.array([gamma[0] for gamma in gammas[::10]])
    difference = float(np.abs(ours / np.array(theirs)[:, 0] - 1.0).max())
    print(f"points                           {len(over) * len(KAPPAS)}")
    print(f"one distribution for all kappas  {1e3 * fast:9.3f} ms per point")
    print(f"a distribution for every kappa   {1e3 * slow:9.3f} ms per point {slow / fast:8.1f} x")
    print(f"dp-accounting, for every kappa   {1e3 * peer:9.3f} ms per point {peer / fast:8.1f} x")
    print(f"dp-accounting over a new distribution of ours             {peer / slow:8.1f} x")
    print(f"largest relative difference of the ceilings               {difference:8.1e}")


if __name__ == "__main__":
    main()
