"""Sections VI-B and VI-C, appendices A and B: the adversary's shadow models and knowledge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from exhume.studies.balle2022 import published
from exhume.studies.balle2022.common import (
    CIFAR,
    LAPTOP,
    LAPTOP_CIFAR,
    LAPTOP_MANY,
    LAPTOP_QUICK,
    LEARNED_ONLY,
    MNIST,
    SLOW,
    SMOKE,
    InformedPart,
    InformedSize,
    about,
    curves,
    failure,
    inverted,
    mse,
    oracle,
    setting,
    spread,
    success,
    worse,
)
from exhume.studies.claims import Claim, ClaimRow, Needs, versus
from exhume.studies.part import Embedding, Tables, minutes, sizes
from exhume.studies.plots import Lines, Plot, PlotLine
from exhume.studies.reading import StudyReading


def _shadows(size: InformedSize) -> Sequence[Tables]:
    *fewer, most = (int(k) for k in size.values)
    settings = [setting(size, f"k={k}", shadows=k, attacks=LEARNED_ONLY) for k in fewer]
    # Trajectory inversion needs no shadow models: one setting is enough.
    return [*settings, setting(size, f"k={most}", shadows=most)]


def _shadow_rows(size: InformedSize) -> Sequence[ClaimRow]:
    *_, most = counts = [int(k) for k in size.values]
    rows = [success(size, f"{most:,} shadow models", "below the oracle from 8K on", f"k={most}")]
    for metric, figure in (("mse", "5c"), ("kl", "5d")):
        for fewer, more in pairwise(counts):
            here, there = (StudyReading(f"{metric}.mean", f"k={k}") for k in (more, fewer))
            claim = Claim(here, "below", there, "more shadow models, smaller error")
            label = f"{metric.upper()}, {fewer:,} → {more:,} shadow models"
            rows.append(ClaimRow(label, f"falls (Fig. {figure})", claim))
    return rows


def _shadow_plots(size: InformedSize) -> Sequence[Plot]:
    across, points = "shadow models", [(k, f"k={int(k)}") for k in size.values]
    captions = "Figure 5c: error by shadow models", "Figure 5d: KL by shadow models"
    return [
        curves("mse", captions[0], across, points),
        curves("kl", captions[1], across, points, quantity="kl.mean", up="KL"),
    ]


SHADOWS = InformedPart(
    name="shadows",
    reference="section VI-B a, Figures 5c and 5d",
    title="the number of shadow models",
    sizes=sizes(
        replace(MNIST, values=(100, 1000, 8000, 20_000, 59_000)),
        replace(LAPTOP_MANY, values=(100, 500, 2000, 8000)),
        replace(SMOKE, values=(40, 400)),
    ),
    minutes=minutes("2 days", "8 min"),
    settings=_shadows,
    rows=_shadow_rows,
    plots=_shadow_plots,
    metrics=("mse", "kl"),
    note=(
        "KL is between the answers of a public classifier on target and reconstruction (see "
        "metrics)."
    ),
)

_PHI = "reconstructor"


def _transfer_counts(size: InformedSize) -> tuple[list[int], int]:
    *few, many = (int(value) for value in size.values)
    return few, many


def _transfer(size: InformedSize) -> Sequence[Tables]:
    few, many = _transfer_counts(size)
    pool = replace(size, shadow_targets=max(few) + many + size.fixed_set)
    scratch = [setting(pool, f"{k} from scratch", shadows=k, attacks=[_PHI]) for k in (*few, many)]
    moved = [setting(pool, f"{k} fine-tuned", shadows=k, attacks=[_PHI]) for k in few]
    for tables in moved:
        tables["options"][_PHI]["first"] = many
    return [*scratch, *moved]


def _transfer_rows(size: InformedSize) -> Sequence[ClaimRow]:
    few, many = _transfer_counts(size)
    moved, scratch = (
        {k: mse(f"{k} {how}") for k in (*few, many)} for how in ("fine-tuned", "from scratch")
    )
    rows = [
        versus(
            *(f"fine-tuned on {k} against {k} from scratch", "better"),
            *(moved[k], "below", scratch[k], "a smaller error"),
            attack=_PHI,
        )
        for k in few
    ]
    last = versus(
        *(f"fine-tuned on {max(few)} against {many:,} from scratch", "comparable"),
        *(moved[max(few)], "about", scratch[many], "about the same"),
        factor=1.25,
        attack=_PHI,
    )
    return [*rows, last]


def _transfer_plots(size: InformedSize) -> Sequence[Plot]:
    few, many = _transfer_counts(size)
    every = (*few, many)
    lines = (
        PlotLine("fine-tuned", tuple((k, mse(f"{k} fine-tuned")) for k in few), attack=_PHI),
        PlotLine("from scratch", tuple((k, mse(f"{k} from scratch")) for k in every), attack=_PHI),
        PlotLine(
            "nearest known record",
            tuple((k, oracle(f"{k} from scratch")) for k in every),
            dashed=True,
        ),
    )
    caption = "Figure 12: error of φ (RecoNN) by shadow models of the second fixed set"
    return [Lines("curve", caption, "shadow models", "mean squared error", lines, log_x=True)]


TRANSFER = InformedPart(
    name="transfer",
    reference="appendix B, Figure 12",
    title="a reconstructor network trained for another fixed set",
    sizes=sizes(
        replace(MNIST, values=(100, 1000, 5000, 40_000)),
        replace(LAPTOP, values=(16, 64, 256, 1000)),
        replace(SMOKE, values=(64, 1000)),
    ),
    minutes=minutes("3 days", "2 min"),
    settings=_transfer,
    rows=_transfer_rows,
    plots=_transfer_plots,
    attacks=(_PHI,),
    note=(
        "Two disjoint fixed sets of the same size; the second one is used only for fine-tuning. "
        "Trajectory inversion needs no shadow models, so there is nothing to transfer."
    ),
)

_INVERTED = "answers, inverted"


def _black_box(size: InformedSize) -> Sequence[Tables]:
    answers = {"kind": "outputs", "queries": int(size.values[0])}
    found = [
        setting(size, "weights"),
        setting(size, "answers", release=answers, attacks=LEARNED_ONLY),
    ]
    if size.data == "mnist":
        # Trajectory inversion of answers is slow: few targets below the paper's scale.
        deep = replace(size, jacobians=max(30, size.jacobians))
        few = size.targets if size.jacobians else 6
        attacks = ["trajectory-inversion"]
        found.append(setting(deep, _INVERTED, release=answers, attacks=attacks, targets=few))
    return found


def _black_box_rows(size: InformedSize) -> Sequence[ClaimRow]:
    label, figure = "only logits are released", published.ANSWERS_ERROR
    rows = [
        success(size, label, figure, "answers"),
        about(size, "logits against weights", "only marginally worse", "answers", "weights"),
    ]
    if size.data == "mnist":
        rows.append(inverted(f"{label}, by inverting the training", _INVERTED, published=figure))
    return rows


BLACK_BOX = InformedPart(
    name="blackbox",
    headlines=("only logits are released",),
    reference="section VI-C",
    title="answers instead of weights",
    sizes=sizes(
        replace(MNIST, values=(200,)),
        replace(LAPTOP_QUICK, values=(200,)),
        replace(SMOKE, values=(100,)),
    ),
    minutes=minutes("4 days", "3 min"),
    settings=_black_box,
    rows=_black_box_rows,
)

_IN, _OUT = "in distribution", "out of distribution"


def _ood(size: InformedSize) -> Sequence[Tables]:
    # Without a second data set of this shape, half of the classes stand for the first.
    own = {"classes": [0, 1, 2, 3, 4]} if size.other_data == size.data else {}
    other = {**own, "shadow_targets_from": size.other_data}
    return [setting(size, _IN, data=own), setting(size, _OUT, data=other)]


OOD = InformedPart(
    name="ood",
    reference="section VI-B b, Figure 6",
    title="shadow models from other data",
    sizes=sizes(
        replace(CIFAR, other_data="cifar-100"),
        replace(LAPTOP_CIFAR, other_data="cifar-100"),
        replace(SMOKE, shadow_targets=500, other_data="digits"),
    ),
    minutes=minutes("130 days", "3 min"),
    settings=_ood,
    rows=lambda size: [
        success(size, "shadow targets from CIFAR-100", "–", _OUT),
        about(size, "CIFAR-100 against CIFAR-10", "a negligible difference", _OUT, _IN, 1.25),
    ],
    plots=lambda size: [
        spread(
            "Figure 6: errors of ridge over the targets, by where the shadow targets come from",
            *("ridge", _IN, _OUT),
        )
    ],
    note="The classes of CIFAR-100 get the ten labels in turn.",
)


def _schedules(size: InformedSize) -> dict[str, tuple[float, float]]:
    """Return learning rate and momentum of the cells of Table III."""
    return {
        f"{rate:g}, {momentum:g}": (rate, momentum)
        for rate in size.values
        for momentum in sorted({0.0, size.momentum})
    }


def _init(size: InformedSize) -> Sequence[Tables]:
    return [
        setting(
            *(size, f"{start} {name}"),
            training={"learning_rate": rate, "momentum": momentum},
            knowledge=knowledge,
        )
        for name, (rate, momentum) in _schedules(size).items()
        for start, knowledge in (("known", {}), ("random", {"initial": False}))
    ]


def _init_rows(size: InformedSize) -> Sequence[ClaimRow]:
    rows = []
    for name, (rate, momentum) in _schedules(size).items():
        known, unknown = published.TABLE_III.get((rate, momentum), ("–", "–"))
        label = f"learning rate {rate:g}, momentum {momentum:g}"
        rows += [
            success(size, f"{label}, initial parameters known", known, f"known {name}"),
            failure(size, f"{label}, random", unknown, f"random {name}", works_on=f"known {name}"),
        ]
    needs = Needs("fixed_set", 10_000, "one record has more influence among fewer")
    for start, relation, limit, words, says in (
        ("known", "above", 0.95, "separable", "distinguishes the target"),
        ("random", "below", 0.6, "nearly overlap", "does not distinguish the target"),
    ):
        reading = StudyReading("membership_auc", f"{start} {list(_schedules(size))[-1]}")
        label = f"membership inference, {start} initial parameters"
        says = f"membership {says}: AUC"
        rows.append(versus(label, words, reading, relation, limit, says, needs=needs))
    return rows


INIT = InformedPart(
    name="init",
    headlines=("learning rate 0.2, momentum 0, random",),
    reference="appendix A, Table III, Figure 11",
    title="initial parameters known or not",
    sizes=sizes(
        replace(MNIST, values=(0.01, 0.2), membership=1000),
        replace(LAPTOP_QUICK, shadow_targets=200, epochs=50, values=(0.01, 0.2), membership=16),
        replace(SLOW, epochs=20, momentum=0.0, values=(0.2,), membership=12),
    ),
    minutes=minutes("20 days", "4 min"),
    settings=_init,
    rows=_init_rows,
    note=(
        "Membership: which of two records was trained on? If the initial parameters are known, "
        "the test repeats the training; otherwise it uses 64 shadow models per candidate (the "
        "paper compares losses)."
    ),
)


def _rates(size: InformedSize) -> list[tuple[float, float]]:
    """Return the pairs of learning rate and momentum of Figures 7 and 23; two at smoke scale."""
    return [(0.01, 0.0), (0.2, 0.0)] + ([(0.01, 0.9), (0.2, 0.9)] if len(size.values) > 1 else [])


def _batched(rate: float, momentum: float, batch: float, known: bool) -> str:
    order = "known" if known else "unknown"
    kept = f", momentum {momentum:g}" if momentum else ""
    return f"rate {rate:g}{kept}, batches of {int(batch)}, order {order}"


def _batches(size: InformedSize) -> Sequence[Tables]:
    return [
        setting(
            *(size, _batched(rate, momentum, batch, known)),
            training={"learning_rate": rate, "momentum": momentum, "batch_size": int(batch)},
            knowledge={"order": known},
        )
        for rate, momentum in _rates(size)
        for batch in size.values
        for known in (True, False)
    ]


def _batch_rows(size: InformedSize) -> Sequence[ClaimRow]:
    rows = []
    for batch in size.values:
        slow, fast = ((rate, 0.0, batch) for rate in (0.01, 0.2))
        label = f"batches of {int(batch)}, learning rate"
        rows += [
            success(size, f"{label} .01, order known", "succeeds", _batched(*slow, True)),
            success(size, f"{label} .01, order unknown", "succeeds", _batched(*slow, False)),
            success(size, f"{label} .2, order known", "succeeds", _batched(*fast, True)),
            worse(
                size,
                f"{label} .2, order unknown against known",
                *("much harder", _batched(*fast, False), _batched(*fast, True)),
            ),
            worse(
                size,
                f"{label} .2 against .01, order unknown",
                *("harder", _batched(*fast, False), _batched(*slow, False)),
            ),
        ]
    for rate, momentum in _rates(size)[2:]:
        cell = (rate, momentum, size.values[0])
        label = f"learning rate {rate:g}, momentum {momentum:g}, order unknown against known"
        rows.append(worse(size, label, "harder", _batched(*cell, False), _batched(*cell, True)))
    return rows


def _batch_plot(size: InformedSize, rate: float, momentum: float) -> Plot:
    lines = [
        PlotLine(
            f"{label}, order {'known' if known else 'unknown'}",
            tuple((b, mse(_batched(rate, momentum, b, known))) for b in size.values),
            attack=attack,
        )
        for attack, label in ((_PHI, "φ"), ("ridge", "ridge"))
        for known in (True, False)
    ]
    nearest = tuple((b, oracle(_batched(rate, momentum, b, True))) for b in size.values)
    lines.append(PlotLine("nearest known record", nearest, dashed=True))
    name = f"rate-{rate:g}-momentum-{momentum:g}".replace(".", "")
    figure = "23" if momentum else "7"
    caption = f"Figure {figure}: learning rate {rate:g}, momentum {momentum:g}"
    axes = ("batch size", "mean squared error")
    return Lines(name, caption, *axes, tuple(lines), log_x=True)


MINIBATCH = InformedPart(
    name="minibatch",
    reference="section VI-B d, Figures 7, 8 and 23",
    title="mini-batches, in a known order or not",
    sizes=sizes(
        replace(MNIST, values=(64, 256, 1024)),
        replace(LAPTOP_QUICK, shadow_targets=120, epochs=10, values=(32, 128)),
        replace(SLOW, values=(16,)),
    ),
    minutes=minutes("60 days", "3 min"),
    settings=_batches,
    rows=_batch_rows,
    plots=lambda size: [
        _batch_plot(size, *one) for one in (_rates(size) if len(size.values) > 1 else ())
    ],
    embedding=lambda size: Embedding(
        "t-SNE of 120 released models, coloured by their targets' labels (Figure 8)",
        tuple(
            _batched(rate, 0.0, size.values[-1], known)
            for rate in (0.01, 0.2)
            for known in (True, False)
        ),
        120,
    ),
    note="Shadow models with their own order are trained one at a time.",
)
