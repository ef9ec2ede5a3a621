"""The prior-aware attack on transcripts of DP training, beside the exact bound.

A 784-10-10 network on MNIST, 500 records, 100 steps, clipping norm 1, learning rate .2; full batch
or Poisson sampling at rate .1. Each trial trains on 499 known records and its own target. The
adversary has every step and K candidates. ``reached`` is the share of right answers with its 95 %
interval. ``ratio`` is the bound over the interval's upper end (the floor: 1.25 at K = 10, 1.6 at K
= 100). ``point`` is the bound over the share itself. ``orthogonal`` is the best success at K
candidates with orthogonal gradients that are always clipped. The bound is for one candidate against
none; K candidates at once are harder to distinguish. A further loss has two causes: candidates with
similar gradients (``cosine``, mean over pairs), and gradients shorter than the clipping norm
(``energy``, mean squared norm over the clipping norm's). Times are processor seconds per trial on
one thread, including training.

    python benchmarks/bench_transcript.py
    python benchmarks/bench_transcript.py --trials 400
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import norm

from exhume.attacks.informed.transcript.evidence import log_ratios, sampled
from exhume.attacks.informed.transcript.watched import WatchedTraining, rest_of, watched
from exhume.bounds import gammas
from exhume.data import load
from exhume.models import MLP
from exhume.protocol.arrays import FloatArray
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.records import Records
from exhume.protocol.seeds import stream
from exhume.stats.proportions import clopper_pearson
from exhume.training import SGD, Batches, DPClipping, Recorded, Training

SIZES = (10, 100)
KNOWN = 499


@dataclass(frozen=True)
class Setting:
    """The noise multiplier, and the number expected per batch (None: all)."""

    noise: float
    batch: int | None = None

    @property
    def name(self) -> str:
        how = "full batch" if self.batch is None else f"Poisson, q = {self.rate:g}"
        return f"{how}, noise {self.noise:g}"

    @property
    def rate(self) -> float:
        return 1.0 if self.batch is None else self.batch / (KNOWN + 1)

    def training(self) -> Recorded:
        batches = None if self.batch is None else Batches(self.batch, None, poisson=True)
        epochs = 100 if self.batch is None else 100 * self.batch // (KNOWN + 1)
        network, clipping = MLP((28, 28), 10, (10,)), DPClipping(1.0, self.noise)
        optimiser = SGD(0.2)
        training = Training(
            network, tuple(range(10)), optimiser, epochs, batches, clipping=clipping
        )
        return Recorded(training)


SETTINGS = (Setting(5.0), Setting(10.0), Setting(20.0), Setting(1.0, 50), Setting(0.7, 50))


@dataclass(frozen=True, eq=False)
class Trials:
    """Right answers (trials, sizes), seconds, and the geometry of the candidates' gradients."""

    right: FloatArray
    seconds: float
    cosine: float
    energy: float


def run(setting: Setting, records: Records, count: int, seed: int) -> Trials:
    """Train and attack ``count`` times, each time with another target and other candidates."""
    mechanism, started = setting.training(), time.process_time()
    order = stream(seed, "split").permutation(len(records))
    fixed_set, pool = records.take(order[:KNOWN]), records.take(order[KNOWN:])
    right, cosines, energies = [], [], []
    for trial in range(count):
        rng = stream(seed, setting.name, trial)
        candidates = pool.take(rng.choice(len(pool), max(SIZES), replace=False))
        release = mechanism.publish(fixed_set.with_record(candidates.take([0])), rng=rng)
        knowledge = Knowledge(
            record_shape=(28, 28), training=mechanism, fixed_set=fixed_set, candidates=candidates
        )
        problem = watched(release, knowledge)
        assert isinstance(problem, WatchedTraining)
        scores = log_ratios(rest_of(problem), candidates)
        right.append([int(scores[:size].argmax()) == 0 for size in SIZES])
        if trial < 10:
            cosine, energy = geometry(problem, candidates)
            cosines.append(cosine)
            energies.append(energy)
    spent = (time.process_time() - started) / count
    return Trials(np.array(right), spent, float(np.mean(cosines)), float(np.mean(energies)))


def geometry(problem: WatchedTraining, candidates: Records) -> tuple[float, float]:
    """Return the mean cosine of pairs of gradients, and their mean squared norm after clipping."""
    objective = problem.training.objective()
    x, y = objective.tensor(candidates.x), objective.responses(candidates.labels)
    cosines, energies = [], []
    for step in range(0, len(problem.transcript), 20):
        theta = objective.flat({n: a[step] for n, a in problem.transcript.parameters.items()})
        each = objective.gradients_each(theta, x, y)
        norms = each.norm(dim=1)
        unit = each / norms[:, None]
        pairs = (unit @ unit.T).sum() - len(unit)
        cosines.append(float(pairs) / (len(unit) * (len(unit) - 1)))
        energies.append(float(norms.clamp_max(1.0).square().mean()))
    return float(np.mean(cosines)), float(np.mean(energies))


def orthogonal(setting: Setting, size: int, steps: int, draws: int = 20_000) -> float:
    """Simulate the best choice among ``size`` orthogonal gradients of the clipping norm."""
    rng, right, done, batch = np.random.default_rng(0), 0, 0, 500
    while done < draws:
        seen = rng.standard_normal((batch, size, steps))
        part = rng.random((batch, steps)) < setting.rate
        seen[:, 0] += part / setting.noise
        ratios = seen / setting.noise - 0.5 / setting.noise**2
        scores = sampled(ratios, np.full(steps, setting.rate)).sum(axis=2)
        right += int((scores.argmax(axis=1) == 0).sum())
        done += batch
    return right / done


def optimum(setting: Setting, size: int) -> float:
    """Return the best success among orthogonal candidates: exact for full batches."""
    if setting.batch is not None:
        return orthogonal(setting, size, 100)
    grid = np.linspace(-10.0, 14.0, 20_001)
    shift = np.sqrt(100.0) / setting.noise
    return float(np.trapezoid(norm.pdf(grid - shift) * norm.cdf(grid) ** (size - 1), grid))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    loaded = load("mnist")
    records = loaded.train.take(slice(0, 20_000))
    print("| setting | K | reached | bound | ratio | point | orthogonal | cosine | energy | s |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for setting in SETTINGS:
        found = run(setting, records, arguments.trials, arguments.seed)
        event = setting.training().event(KNOWN + 1)
        bounds = gammas(event, [1.0 / size for size in SIZES])
        assert bounds is not None
        for column, size in enumerate(SIZES):
            rate = clopper_pearson(int(found.right[:, column].sum()), arguments.trials)
            bound = float(bounds[column])
            print(
                f"| {setting.name} | {size} | {rate.rate:.3f} [{rate.low:.3f}, {rate.high:.3f}] | "
                f"{bound:.3f} | {bound / rate.high:.2f} | {bound / max(rate.rate, 1e-9):.2f} | "
                f"{optimum(setting, size):.3f} | {found.cosine:.3f} | {found.energy:.3f} | "
                f"{found.seconds:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
