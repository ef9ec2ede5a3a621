"""Sections VI-B d and e: randomness that the adversary does not know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from exhume.studies.balle2022.common import (
    LAPTOP_QUICK,
    MNIST,
    PAPER,
    SLOW,
    failure,
    mse,
    oracle,
    setting,
    success,
)
from exhume.studies.balle2022.released import worse
from exhume.studies.base import Embedding, Part, Size, Tables, minutes, sizes
from exhume.studies.claims import Claim, Needs, Row
from exhume.studies.plots import Line, Lines, Plot
from exhume.studies.run import Reading

_TABLE_III = {
    (0.01, 0.0): (0.0041, 0.0693),
    (0.01, 0.9): (0.0049, 0.0691),
    (0.2, 0.0): (0.0063, 0.0692),
    (0.2, 0.9): (0.0089, 0.0695),
}
"""(learning rate, momentum): error with known and with random initial parameters."""


def _init_cells(size: Size) -> list[tuple[str, float, float]]:
    return [
        (f"{rate:g}, {momentum:g}", rate, momentum)
        for rate in size.values
        for momentum in sorted({0.0, size.momentum})
    ]


def _init(size: Size) -> Sequence[Tables]:
    found = []
    for name, rate, momentum in _init_cells(size):
        training = {"learning_rate": rate, "momentum": momentum}
        found.append(setting(size, f"known {name}", training=training))
        unknown = {"initial": False}
        found.append(setting(size, f"random {name}", training=training, knowledge=unknown))
    return found


def _init_rows(size: Size) -> Sequence[Row]:
    rows = []
    for name, rate, momentum in _init_cells(size):
        known, unknown = _TABLE_III.get((rate, momentum), ("–", "–"))
        label = f"learning rate {rate:g}, momentum {momentum:g}"
        rows.append(success(f"{label}, initial parameters known", known, f"known {name}"))
        random = f"random {name}"
        rows.append(failure(f"{label}, random", unknown, random, works_on=f"known {name}"))
    name = _init_cells(size)[-1][0]
    rows += [_membership("known", name, "above", 0.95, "separable", "tells the target apart")]
    rows += [
        _membership("random", name, "below", 0.6, "nearly overlap", "can't tell the target apart")
    ]
    return rows


def _membership(
    start: str, name: str, relation: str, limit: float, published: str, says: str
) -> Row:
    reading = Reading("membership_auc", f"{start} {name}")
    needs = Needs("fixed_set", 10_000, "one record weighs more among fewer")
    claim = Claim(reading, relation, limit, f"membership {says}: AUC", attacks=("",), needs=needs)
    return Row(f"membership inference, {start} initial parameters", published, reading, claim)


INIT = Part(
    paper=PAPER,
    name="init",
    reference="appendix A, Table III, Figure 11",
    title="initial parameters known or not",
    sizes=sizes(
        replace(MNIST, values=(0.01, 0.2), membership=1000),
        replace(
            LAPTOP_QUICK,
            shadow_targets=200,
            epochs=50,
            values=(0.01, 0.2),
            membership=16,
        ),
        replace(SLOW, epochs=20, momentum=0.0, values=(0.2,), membership=12),
    ),
    minutes=minutes("20 days", "4 min"),
    settings=_init,
    rows=_init_rows,
    note=(
        "Membership: which of two records was trained on, by training again where the start is "
        "known and by 64 shadow models a candidate where it is not (the paper looks at losses)."
    ),
)


def _schedules(size: Size) -> list[tuple[float, float]]:
    """Return the pairs of learning rate and momentum of Figures 7 and 23; two at smoke scale."""
    return [(0.01, 0.0), (0.2, 0.0)] + ([(0.01, 0.9), (0.2, 0.9)] if len(size.values) > 1 else [])


def _batched(rate: float, momentum: float, batch: float, known: bool) -> str:
    order = "known" if known else "unknown"
    kept = f", momentum {momentum:g}" if momentum else ""
    return f"rate {rate:g}{kept}, batches of {int(batch)}, order {order}"


def _batches(size: Size) -> Sequence[Tables]:
    found = []
    for rate, momentum in _schedules(size):
        for batch in size.values:
            for known in (True, False):
                training = {"learning_rate": rate, "momentum": momentum, "batch_size": int(batch)}
                name = _batched(rate, momentum, batch, known)
                found.append(setting(size, name, training=training, knowledge={"order": known}))
    return found


def _batch_rows(size: Size) -> Sequence[Row]:
    rows = []
    for batch in size.values:
        slow, fast = ((r, 0.0, batch) for r in (0.01, 0.2))
        label = f"batches of {int(batch)}, learning rate"
        rows += [
            success(f"{label} .01, order known", "succeeds", _batched(*slow, True)),
            success(f"{label} .01, order unknown", "succeeds", _batched(*slow, False)),
            success(f"{label} .2, order known", "succeeds", _batched(*fast, True)),
            worse(
                f"{label} .2, order unknown against known",
                *("much harder", _batched(*fast, False), _batched(*fast, True)),
            ),
            worse(
                f"{label} .2 against .01, order unknown",
                *("harder", _batched(*fast, False), _batched(*slow, False)),
            ),
        ]
    for rate, momentum in _schedules(size)[2:]:
        cell = (rate, momentum, size.values[0])
        label = f"learning rate {rate:g}, momentum {momentum:g}, order unknown against known"
        rows.append(worse(label, "harder", _batched(*cell, False), _batched(*cell, True)))
    return rows


def _batch_plots(size: Size) -> Sequence[Plot]:
    if len(size.values) < 2:
        return []
    found = []
    for rate, momentum in _schedules(size):
        lines = [
            Line(
                f"{label}, order {'known' if known else 'unknown'}",
                tuple((b, mse(_batched(rate, momentum, b, known))) for b in size.values),
                attack=attack,
            )
            for attack, label in (("reconstructor", "φ"), ("ridge", "ridge"))
            for known in (True, False)
        ]
        nearest = tuple((b, oracle(_batched(rate, momentum, b, True))) for b in size.values)
        lines.append(Line("nearest known record", nearest, dashed=True))
        name = f"rate-{rate:g}-momentum-{momentum:g}".replace(".", "")
        figure = "23" if momentum else "7"
        caption = f"Figure {figure}: learning rate {rate:g}, momentum {momentum:g}"
        axes = ("batch size", "mean squared error")
        found.append(Lines(name, caption, *axes, tuple(lines), log_x=True))
    return found


def _embedded(size: Size) -> Embedding:
    return Embedding(
        "t-SNE of 120 released models, coloured by their targets' labels (Figure 8)",
        tuple(
            _batched(rate, 0.0, size.values[-1], known)
            for rate in (0.01, 0.2)
            for known in (True, False)
        ),
        120,
    )


_MINIBATCH = {
    "paper": replace(MNIST, values=(64, 256, 1024)),
    "laptop": replace(LAPTOP_QUICK, shadow_targets=120, epochs=10, values=(32, 128)),
    "smoke": replace(SLOW, values=(16,)),
}

MINIBATCH = Part(
    paper=PAPER,
    name="minibatch",
    reference="section VI-B d, Figures 7, 8 and 23",
    title="mini-batches, in a known order or not",
    sizes=sizes(_MINIBATCH["paper"], _MINIBATCH["laptop"], _MINIBATCH["smoke"]),
    minutes=minutes("60 days", "3 min"),
    settings=_batches,
    rows=_batch_rows,
    plots=_batch_plots,
    embedding=_embedded,
    note="Every shadow model is trained alone where the order is its own.",
)


PARTS = (INIT, MINIBATCH)
