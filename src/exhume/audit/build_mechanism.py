"""Mechanisms as a configuration's tables describe them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from exhume.audit.build_training import batches_of, build_training, knows, optimiser_of
from exhume.audit.defending import defended
from exhume.audit.estimator_of import estimator_of
from exhume.config import (
    EstimatorReleaseTable,
    ImprintTable,
    LinearReleaseTable,
    NetworkReleaseTable,
    ReleaseTable,
    SettingTable,
    WarmUpTable,
)
from exhume.models.base import under_own_names
from exhume.models.initialise import Initialisation, Scheme
from exhume.protocol.arrays import Array
from exhume.protocol.defence import Place
from exhume.protocol.errors import InputError
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.records import Records
from exhume.protocol.release import Answer
from exhume.protocol.schema import Schema
from exhume.protocol.seeds import stream
from exhume.training.model import Label

if TYPE_CHECKING:
    from exhume.models import Network
    from exhume.training import Model
    from exhume.training.gradient import GradientStep
    from exhume.training.warm_up import State


def build_mechanism(
    table: SettingTable,
    fixed_set: Records,
    *,
    seed: int,
    before: Records | None = None,
    schema: Schema | None = None,
) -> Mechanism:
    """Return the mechanism of a setting: the model, its defences, and answers if it gives them.

    Calibrated noise is added to the parameters; the other defences change the release. A network
    that was trained ``before`` on public records starts from there.
    """
    from exhume.training import Answers
    from exhume.training.answers import probes

    release = table.release
    if isinstance(release, EstimatorReleaseTable):
        estimator = estimator_of(release, fixed_set, schema)
        return defended(estimator, release.defences, len(fixed_set) + 1)
    mechanism: Mechanism = _started_before(_model(table, fixed_set, seed), before, seed)
    if release.kind == "transcript":
        return _recorded(mechanism, release)
    parameters = [d for d in release.defences if d.kind.place is Place.PARAMETERS]
    mechanism = defended(mechanism, parameters, len(fixed_set) + 1)
    if release.kind == "outputs":
        count = release.queries or 2 * (int(np.prod(fixed_set.record_shape)) + 1)
        queries = probes(fixed_set, count, rng=stream(seed, "queries"))
        mechanism = Answers(mechanism, queries, Answer(release.answer))
    others = [d for d in release.defences if d not in parameters]
    return defended(mechanism, others, len(fixed_set) + 1)


def _recorded(training: Mechanism, release: ReleaseTable) -> Mechanism:
    """Return the training with its steps recorded; a sampled record's own steps stay secret."""
    from exhume.training import Recorded, Training

    assert isinstance(release, NetworkReleaseTable)
    assert isinstance(training, Training)
    batches = training.batches
    if batches is not None and batches.poisson:
        training = replace(training, batches=replace(batches, seed=None))
    return Recorded(training, release.every)


def build_batch_mechanism(
    table: SettingTable,
    record_shape: tuple[int, ...],
    classes: tuple[Label, ...],
    pool: Records | None,
    seed: int,
    *,
    state: Mapping[str, Array] | None = None,
    schema: Schema | None = None,
) -> Mechanism:
    """Return the mechanism of a gradient, an update or weights alone, with its defences.

    The parameters are ``state`` if given; otherwise they are drawn, and trained on ``pool`` if the
    table has a warm-up. With a ``schema`` the network gets numbers in standard deviations of the
    ``pool``, which are public.
    """
    from exhume.training import SGD
    from exhume.training.gradient import GradientStep, Step
    from exhume.training.local_steps import Aggregate, LocalSteps

    release, training = table.release, table.knowledge.training
    assert isinstance(release, NetworkReleaseTable)
    if release.alone:
        trained = _alone(table, release, record_shape, classes, seed)
        return defended(trained, release.defences, table.batch or 1)
    network = _architecture(release, record_shape, len(classes))
    if schema is not None and pool is not None:
        network = _of_columns(network, schema, pool)
    parameters, buffers = _state(network, release, pool, classes, seed, state)
    step = GradientStep(
        network,
        classes,
        Initialisation(seed=seed),
        parameters,
        buffers,
        device=release.device,
        batch_norm=release.batch_norm,
    )
    if release.imprint is not None:
        step = _imprinted(step, release.imprint, pool, seed)
    records, defences = table.batch or 1, release.defences
    inside = [d for d in defences if training and d.kind.place is Place.STEP]
    mechanism = defended(step, inside, records)
    if training is not None:
        assert isinstance(mechanism, Step)
        optimiser = optimiser_of(training)
        if not isinstance(optimiser, SGD) or training.refined not in (None, "nesterov"):
            other = training.refined or f"optimiser = {training.optimiser!r}"
            raise InputError(
                f"an update's local steps are gradient descent (optimiser = 'sgd'), without {other}"
            )
        batches = batches_of(training, table.knowledge, release, seed)
        mechanism = LocalSteps(mechanism, optimiser, training.epochs, batches)
    if release.clients is not None:
        mechanism = Aggregate(mechanism, release.clients)
    return defended(mechanism, [d for d in defences if d not in inside], records)


def _of_columns(network: Network, schema: Schema, pool: Records) -> Network:
    """Return the network behind public constants that standardise the numbers of a table."""
    from exhume.models.public_units import PublicUnits

    rows, spread = np.asarray(pool.x, dtype=np.float64), schema.scale(pool.x)
    centre = np.where(schema.numbers, rows.mean(axis=0), 0.0)
    scale = np.where(schema.numbers, spread, 1.0)
    return PublicUnits(network, tuple(centre.tolist()), tuple(scale.tolist()))


def _imprinted(
    step: GradientStep, table: ImprintTable, pool: Records | None, seed: int
) -> GradientStep:
    """Return the step that a malicious server requests instead."""
    from exhume.attacks.gradients.analytic import Imprint
    from exhume.protocol.knowledge import Knowledge

    knowledge = Knowledge(
        record_shape=step.network.record_shape, training=step, shadow_targets=pool
    )
    attack = Imprint(bins=table.bins, into=table.into)
    return attack.craft(knowledge, stream(seed, "imprint"))


_Arrays = Mapping[str, Array]


def _state(
    network: Network,
    release: NetworkReleaseTable,
    pool: Records | None,
    classes: tuple[Label, ...],
    seed: int,
    given: _Arrays | None,
) -> tuple[_Arrays | None, _Arrays | None]:
    """Return the parameters and buffers at which a gradient is computed; None if they are drawn."""
    if given is not None:
        own = network.parameter_shapes()
        given = under_own_names([*own, *network.buffer_names()], given)
        buffers = {name: array for name, array in given.items() if name not in own}
        return {name: given[name] for name in given if name in own}, buffers or None
    if release.warm_up is None:
        return None, None
    if pool is None:
        raise InputError("warm_up trains on data.shadow_targets, but there are none")
    state = _warmed_up(network, classes, pool, release.warm_up, seed)
    return state.parameters, state.buffers or None


@lru_cache(maxsize=4)
def _warmed_up(
    network: Network, classes: tuple[Label, ...], pool: Records, warm: WarmUpTable, seed: int
) -> State:
    """Train a little on ``pool``; settings that differ only in their defence share it."""
    from exhume.training import Training
    from exhume.training.warm_up import train_a_little

    return train_a_little(
        network,
        Records(pool.x, Training(network, classes).responses(pool.labels)),
        warm.steps,
        batch_size=warm.batch_size,
        learning_rate=warm.learning_rate,
        seed=seed,
    )


def _model(table: SettingTable, fixed_set: Records, seed: int) -> Model:
    if isinstance(table.release, LinearReleaseTable):
        return _linear(table.release, fixed_set)
    assert isinstance(table.release, NetworkReleaseTable)
    return _network(table, table.release, fixed_set, seed)


def _started_before(model: Model, before: Records | None, seed: int) -> Model:
    """Return a training that starts from its result on other records."""
    from exhume.models.initialise import GivenInitialisation
    from exhume.training import Training

    if before is None:
        return model
    if not isinstance(model, Training) or not model.initial.known:
        raise InputError("data.before goes with networks whose initial parameters are known")
    trained = model.publish(before, rng=stream(seed, "before"))
    return replace(model, initial=GivenInitialisation(parameters=trained.parameters))


def _linear(table: LinearReleaseTable, fixed_set: Records) -> Model:
    from exhume.training import GLM, Family, Penalty, Solver

    family = Family.LINEAR if table.model == "ridge" else Family(table.model)
    return GLM(
        family,
        Penalty(**table.penalty.model_dump()),
        table.intercept,
        classes=_classes(fixed_set) if family.classifies else None,
        standardise=table.standardise,
        solver=Solver(**table.solver.model_dump()),
    )


def _network(
    table: SettingTable, release: NetworkReleaseTable, fixed_set: Records, seed: int
) -> Model:
    classes = _classes(fixed_set) if _classifies(fixed_set) else None
    if fixed_set.labels.dtype.kind == "f":
        # Only the labels say what a network's outputs are: whole numbers may be responses.
        classes = None if classes is None or len(classes) > _FEW else classes
    outputs = 1 if classes is None else len(classes)
    if release.training is not None:
        return _loop(table, release, fixed_set.record_shape, classes, seed)
    network = _architecture(release, fixed_set.record_shape, outputs)
    return _trained(table, release, network, classes, seed)


_FEW = 20
"""Floating-point labels with more values than this are responses of a regression."""


def _loop(
    table: SettingTable,
    release: NetworkReleaseTable,
    record_shape: tuple[int, ...],
    classes: tuple[Label, ...] | None,
    seed: int,
) -> Model:
    """Return a training by a function of the user's own."""
    from exhume.models.own_code import code_named
    from exhume.training import Loop

    assert release.training is not None
    outputs = 1 if classes is None else len(classes)
    network = _architecture(release, record_shape, outputs) if release.model else None
    known = table.knowledge.seed
    own = None if known is False else seed if known is True else known
    return Loop(code_named(release.training), classes, network, own)


def _trained(
    table: SettingTable,
    release: NetworkReleaseTable,
    network: Network,
    classes: tuple[Label, ...] | None,
    seed: int,
) -> Model:
    """Return the training of a network from the table."""
    training = table.knowledge.training
    assert training is not None
    return build_training(training, table.knowledge, release, network, classes, seed)


def _alone(
    table: SettingTable,
    release: NetworkReleaseTable,
    record_shape: tuple[int, ...],
    classes: tuple[Label, ...],
    seed: int,
) -> Model:
    """Return the training of a network with known weights only, with the loss it names."""
    from exhume.training.stationary import Stationary

    training = table.knowledge.training
    assert training is not None
    single = training.loss in ("logistic", "squared-error")
    network = _architecture(release, record_shape, 1 if single else len(classes))
    if training.loss != "logistic":
        return _trained(table, release, network, None if single else classes, seed)
    own = seed if training.seed is None else training.seed
    start = own if knows("initial", table.knowledge, release, training.seed) else None
    return Stationary(
        *(network, classes, training.weight_decay, training.learning_rate, training.momentum),
        steps=training.epochs,
        rounds=0,
        initial=Initialisation(Scheme(training.initialisation), start),
    )


def _architecture(
    table: NetworkReleaseTable, record_shape: tuple[int, ...], outputs: int
) -> Network:
    from exhume.models import CNN, MLP, Activation, Convolution, Exported, Imported
    from exhume.models.convnet import ConvNet
    from exhume.models.lenet import LeNet
    from exhume.models.resnet import ResNet, resnet20
    from exhume.models.two_layer import TwoLayer

    if table.foreign:
        return Imported(record_shape, outputs, table.model)
    if table.program is not None:
        return Exported(record_shape, outputs, table.program)
    activation = Activation(table.activation or "elu")
    match table.model:
        case "mlp":
            return MLP(record_shape, outputs, table.hidden, activation)
        case "cnn":
            convolutions = tuple(Convolution(**one.model_dump()) for one in table.convolutions)
            return CNN(record_shape, outputs, convolutions, activation)
        case "lenet":
            return LeNet(record_shape, outputs)
        case "two-layer":
            chosen = Activation(table.activation or "relu")
            return TwoLayer(record_shape, outputs, table.width or 1024, chosen)
        case "convnet":
            return ConvNet(record_shape, outputs, table.width or 32)
        case "resnet18":
            width, head = table.width or 64, table.wide_head
            return ResNet(record_shape, outputs, width, wide_head=head)
    return resnet20(record_shape, outputs)


def _classes(fixed_set: Records) -> tuple[int | float | str, ...]:
    return tuple(np.unique(fixed_set.labels).tolist())


def _classifies(fixed_set: Records) -> bool:
    """Whole numbers and words are classes; anything else is a response to predict."""
    labels = fixed_set.labels
    return labels.dtype.kind not in "f" or np.array_equal(labels, np.rint(labels))
