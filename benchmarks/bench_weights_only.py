"""Records recovered from weights alone, their authenticity, and the gain from batched restarts.

    EXHUME_DATA=... python benchmarks/bench_weights_only.py [kkt] [real] [initial] [other] [batch]

Pictures come from Fashion-MNIST, odd against even classes. ``kkt`` and ``initial`` report seeds 10,
11, 12, on which nothing was tuned. ``real`` reports 0, 1, 2, and its judge learns from networks of
seeds 100, 101, 102 with other pictures. Seconds are CPU seconds of one thread.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

import numpy as np
import torch

from exhume.attacks.weights_only import KKT, KnownInitialisation, RowSpace
from exhume.attacks.weights_only.adam_search import Schedule
from exhume.attacks.weights_only.authenticity import (
    AuthenticityEvidence,
    Calibration,
    Comparison,
    Grouped,
    calibrate,
    claims,
    compare,
    fitted,
    gather,
    in_turn,
    joined,
    learn,
)
from exhume.attacks.weights_only.read_weights import HiddenLayer, read_any
from exhume.attacks.weights_only.record_counts import candidate_classes
from exhume.attacks.weights_only.restarts import restarted
from exhume.attacks.weights_only.row_span import span_of
from exhume.attacks.weights_only.starts import GaussianStart
from exhume.attacks.weights_only.stationarity import Stationarity
from exhume.data import load
from exhume.metrics import NCC
from exhume.models import CNN, MLP, Activation, Convolution
from exhume.models.initialise import Initialisation
from exhume.models.two_layer import TwoLayer
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction
from exhume.protocol.records import Records
from exhume.protocol.release import Weights
from exhume.training.network import Training
from exhume.training.optimisers import SGD
from exhume.training.stationary import Stationary

FRESH, REPORTED, SHADOWS = (10, 11, 12), (0, 1, 2), (100, 101, 102)
COUNT = 50
ROW_SPACE = RowSpace(records=COUNT, draws=6000)


@dataclass(frozen=True, eq=False)
class Victim:
    """A network, the pictures it was trained on, and as many held-out ones."""

    release: Weights
    knowledge: Knowledge
    data: Records
    held_out: Records

    @property
    def centre(self) -> Array:
        return self.release.parameters["centre"]

    @property
    def network(self) -> HiddenLayer:
        found = read_any(self.release, self.knowledge)
        assert isinstance(found, HiddenLayer)
        return found

    def compare(self, samples: Array) -> Comparison:
        return compare(
            samples,
            *(self.data.x, self.held_out.x),
            centre=self.centre,
            value_range=(0.0, 1.0),
        )


def pictures(seed: int, count: int) -> tuple[Records, Records]:
    """Return training and held-out pictures; seeds never share one."""
    train = load("fashion-mnist").train
    order = np.random.default_rng(2026).permutation(len(train.labels))
    block = order[200 * seed : 200 * (seed + 1)]
    odd = train.labels[block] % 2
    halves = [block[odd == kind] for kind in (0, 1)]
    parts = [
        np.concatenate([half[i * count // 2 : (i + 1) * count // 2] for half in halves])
        for i in (0, 1)
    ]
    sets = [Records(train.x[part].astype(np.float64), train.labels[part] % 2) for part in parts]
    return sets[0], sets[1]


def victim(seed: int) -> Victim:
    """Train 784-200-1 with weight decay 3e-3 on 50 pictures."""
    data, held_out = pictures(seed, COUNT)
    training = Stationary(TwoLayer((28, 28), 1, 200, hidden_bias=True), (0, 1))
    release = training.publish(data, rng=np.random.default_rng(seed))
    known = Knowledge(record_shape=(28, 28), value_range=(0.0, 1.0), training=training)
    return Victim(release, known, data, held_out)


def attacked(who: Victim, attack: KKT | RowSpace) -> tuple[Reconstruction, float]:
    """Run an attack; return its answer and the seconds."""
    begun = time.process_time()
    found = attack.reconstruct(who.release, who.knowledge, rng=0)
    return found, time.process_time() - begun


def bench_kkt() -> None:
    """Print the pictures recovered, next to held-out ones, and the objective at the truth."""
    for seed in FRESH:
        begun = time.process_time()
        who = victim(seed)
        print(f"seed {seed}: trained in {time.process_time() - begun:.0f} s")
        own = NCC().pairwise(who.held_out.x - who.centre, who.data.x - who.centre).max(axis=1)
        print(f"  held-out pictures correlated > .7 with a training picture: {sum(own > 0.7)}")
        truth = fitted(who.network, who.data.x, who.data.labels).residual
        kinds: list[tuple[str, Reconstruction, float]] = []
        for attack in (KKT(records=COUNT, draws=0), ROW_SPACE, KKT(records=COUNT)):
            name = "kkt, search alone" if attack == KKT(records=COUNT, draws=0) else attack.name
            kinds.append((name, *attacked(who, attack)))
        for name, found, seconds in kinds:
            _tell(who, name, found.samples, seconds)
            classes = (who.network.scores(found.samples.reshape(len(found), -1)) > 0)[:, 0]
            there = fitted(who.network, found.samples, classes).residual
            print(f"    objective {there:.4f} at the candidates, {truth:.4f} at the truth")


def _tell(who: Victim, name: str, samples: Array, seconds: float) -> None:
    against = who.compare(samples)
    plain = (
        NCC()
        .pairwise(np.concatenate([who.data.x, who.held_out.x]) - who.centre, samples - who.centre)
        .max(axis=1)
    )
    counts = ", ".join(
        f"{against.recovered(level)} / {against.false_positives(level)} > {level}"
        for level in (0.7, 0.9)
    )
    loose = f"{sum(plain[:COUNT] > 0.7)} / {sum(plain[COUNT:] > 0.7)}"
    print(
        f"  {name}: training / held-out nearest of all {counts}; any candidate > .7 {loose}; "
        f"{len(samples)} candidates, {seconds:.0f} s"
    )


def bench_real() -> None:
    """Print whether candidates can be separated from inventions without the training set."""
    seeds = (*SHADOWS, *REPORTED)
    people = {seed: victim(seed) for seed in seeds}
    search = KKT(records=COUNT, draws=0, restarts=3, steps=3000)
    searched = {seed: attacked(people[seed], search)[0] for seed in seeds}
    spanned = {seed: attacked(people[seed], RowSpace(records=COUNT))[0] for seed in seeds}
    for name, found, other in (
        ("kkt, search alone", searched, spanned),
        ("row-space", spanned, searched),
    ):
        rows = {
            seed: gather(
                *(people[seed].release, people[seed].knowledge, found[seed]),
                records=COUNT,
                others=(other[seed].samples,),
            )
            for seed in seeds
        }
        for level in (0.7, 0.9):
            print(f"{name}, real above {level:g}:")
            _tell_real(people, found, rows, level)


def _tell_real(
    people: dict[int, Victim],
    found: dict[int, Reconstruction],
    rows: dict[int, AuthenticityEvidence],
    level: float,
) -> None:
    """Train a judge on the shadow networks, and measure it on the reported ones."""
    seen = {seed: people[seed].compare(found[seed].samples) for seed in people}
    real = {seed: seen[seed].real(level) for seed in people}
    try:
        judge = learn([rows[s] for s in SHADOWS], [real[s] for s in SHADOWS])
    except InputError as error:
        print(f"  {error}")
        return
    print(f"  {judge.describe()}")
    scores = {seed: judge.score(rows[seed]) for seed in REPORTED}
    told = joined(
        [Grouped(scores[s], seen[s].training.index, np.full(len(scores[s]), s)) for s in REPORTED]
    )
    truth = np.concatenate([real[s] for s in REPORTED])
    print(
        f"  {truth.sum()} real candidates of {told.only(truth).pictures} pictures, "
        f"{(~truth).sum()} invented of {told.only(~truth).pictures}"
    )
    measured = calibrate(told.only(truth), told.only(~truth))
    naive = calibrate(told.scores[truth], told.scores[~truth])
    print(f"  candidates: {measured.describe()}")
    print(f"  as if they were independent: {naive.describe()}")
    _tell_claimed(rows, real, seen, measured)
    _tell_claims(people, found, scores)


def _tell_claimed(
    rows: dict[int, AuthenticityEvidence],
    real: dict[int, Array],
    seen: dict[int, Comparison],
    measured: Calibration,
) -> None:
    """Print the claim of the shadow networks alone, and the effect of their threshold elsewhere."""
    scores = in_turn([rows[s] for s in SHADOWS], [real[s] for s in SHADOWS])
    own = joined(
        [
            Grouped(score, seen[s].training.index, np.full(len(score), s))
            for s, score in zip(SHADOWS, scores, strict=True)
        ]
    )
    truth = np.concatenate([real[s] for s in SHADOWS])
    claimed = calibrate(own.only(truth), own.only(~truth))
    print(f"  the shadow networks say: {claimed.describe()}")
    if claimed.threshold is not None:
        rate = measured.other.share(claimed.threshold)
        print(
            f"    its threshold here: {measured.real.reaching(claimed.threshold)} of "
            f"{measured.real.pictures} recognised, false positives {rate.estimate:.3f} "
            f"[{rate.low:.3f}, {rate.high:.3f}]"
        )


def _tell_claims(
    people: dict[int, Victim],
    found: dict[int, Reconstruction],
    scores: dict[int, FloatArray],
) -> None:
    """Test each network on its own pictures, held-out ones, and those of other networks."""

    def asked(seed: int, images: Array, owner: int) -> Grouped:
        answers = claims(images, found[seed].samples, scores[seed], centre=people[seed].centre)
        return Grouped(answers, np.arange(COUNT), np.full(COUNT, owner))

    members = joined([asked(s, people[s].data.x, s) for s in REPORTED])
    held_out = joined([asked(s, people[s].held_out.x, s) for s in REPORTED])
    without = joined([asked(s, people[t].data.x, t) for s in REPORTED for t in REPORTED if s != t])
    print(f"  images, against held-out ones: {calibrate(members, held_out).describe()}")
    print(f"  images, against networks without them: {calibrate(members, without).describe()}")


def bench_initial() -> None:
    """Print how many of 20 records are recovered if the initialisation is known."""
    for seed in FRESH:
        data, held_out = pictures(seed, 20)
        data = Records(data.x, 2.0 * data.labels - 1.0)
        training = Training(
            TwoLayer((28, 28), 1, 1000, hidden_bias=True, output_bias=True),
            *(None, SGD(0.01, 0.0), 200),
            initial=Initialisation(seed=seed),
        )
        release = training.publish(data, rng=np.random.default_rng(seed))
        initial = training.initial.draw(training.network, np.random.default_rng(0))
        known = Knowledge(
            record_shape=(28, 28), value_range=(0.0, 1.0), training=training, initial=initial
        )
        for attack in (KnownInitialisation(), RowSpace(records=20)):
            begun = time.process_time()
            found = attack.reconstruct(release, known, rng=0)
            seconds = time.process_time() - begun
            best = [NCC().pairwise(x, found.samples).max(axis=1) for x in (data.x, held_out.x)]
            against = compare(found.samples, data.x, held_out.x)
            print(
                f"seed {seed}, {attack.name}: > .9 {sum(best[0] > 0.9)} of 20 (held-out "
                f"{sum(best[1] > 0.9)}), nearest of all {against.recovered(0.9)} / "
                f"{against.false_positives(0.9)}; {seconds:.0f} s"
            )


def bench_other() -> None:
    """Print the recovery from a deeper network and from a convolution, at half the resolution."""
    deep = MLP((14, 14), 2, (80, 40), Activation.RELU)
    convolution = CNN((14, 14), 2, (Convolution(32, 5, 3),), Activation.RELU)
    for network, seeds in ((deep, FRESH), (convolution, FRESH[:1])):
        for seed in seeds:
            data, held_out = (
                Records(part.x.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)), part.labels)
                for part in pictures(seed, 16)
            )
            training = Training(
                *(network, (0, 1), SGD(0.1, 0.9, weight_decay=3e-3), 3000),
                initial=Initialisation(seed=None),
            )
            release = training.publish(data, rng=np.random.default_rng(seed))
            known = Knowledge(record_shape=(14, 14), value_range=(0.0, 1.0), training=training)
            begun = time.process_time()
            found = KKT(records=16, steps=1500, restarts=4).reconstruct(release, known, rng=0)
            seconds = time.process_time() - begun
            seen = compare(found.samples, data.x, held_out.x, centre=data.x.mean(axis=0))
            print(
                f"{network.describe()}, seed {seed}: {seen.recovered(0.7)} of 16 / held-out "
                f"{seen.false_positives(0.7)}; residual {found.stats['residual']:.4f}; "
                f"{seconds:.0f} s"
            )


def bench_batch() -> None:
    """Print the cost of restarts in one batch and one after another, for two network sizes."""
    data, _ = pictures(SHADOWS[0], 10)
    halves = data.x.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4))
    training = Stationary(TwoLayer((14, 14), 1, 40, hidden_bias=True), (0, 1))
    release = training.publish(Records(halves, data.labels), rng=np.random.default_rng(0))
    known = Knowledge(record_shape=(14, 14), value_range=(0.0, 1.0), training=training)
    large = victim(SHADOWS[0])
    _tell_batches("196-40-1, 10 pictures", release, known, 10)
    _tell_batches("784-200-1, 50 pictures", large.release, large.knowledge, COUNT)


def _tell_batches(name: str, release: Weights, knowledge: Knowledge, count: int) -> None:
    network = read_any(release, knowledge)
    assert isinstance(network, HiddenLayer)
    span = span_of(network, count)
    problem = Stationarity(network, span)
    classes = candidate_classes(network, knowledge, 2 * count)

    def run(restarts: int) -> float:
        begun = time.process_time()
        restarted(
            *(problem, span, classes, knowledge, Schedule(steps=200)),
            *(GaussianStart(0.1), (0.005, 0.055), restarts, np.random.default_rng(0)),
            from_centre=True,
        )
        return time.process_time() - begun

    run(1)
    for restarts in (4, 16):
        together, alone = run(restarts), sum(run(1) for _ in range(restarts))
        print(
            f"{name}, {restarts} restarts: {alone / together:.2f} times faster in one batch "
            f"({1000 * alone / restarts / 200:.2f} ms per step alone)"
        )


def main() -> None:
    torch.set_num_threads(1)
    parts = {
        "kkt": bench_kkt,
        "real": bench_real,
        "initial": bench_initial,
        "other": bench_other,
        "batch": bench_batch,
    }
    for name in sys.argv[1:] or list(parts):
        print(f"== {name}")
        parts[name]()


if __name__ == "__main__":
    main()
