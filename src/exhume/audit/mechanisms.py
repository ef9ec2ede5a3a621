"""Mechanisms as a configuration's tables describe them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from exhume.arrays import Array
from exhume.audit.defending import INSIDE, defended
from exhume.config import (
    ImprintTable,
    LinearReleaseTable,
    NetworkReleaseTable,
    OutputPerturbationTable,
    SettingTable,
    TrainingTable,
    WarmUpTable,
)
from exhume.errors import InputError
from exhume.mechanism import Mechanism
from exhume.models.initialise import Initialisation, Scheme
from exhume.records import Records
from exhume.release import Answer
from exhume.seeds import stream
from exhume.training.model import Label

if TYPE_CHECKING:
    from exhume.models import Network
    from exhume.models.trained import State
    from exhume.training import SGD, Adam, Batches, Clipping, Model
    from exhume.training.gradient import GradientStep


def build_mechanism(
    table: SettingTable, fixed_set: Records, *, seed: int, before: Records | None = None
) -> Mechanism:
    """Return the mechanism of a setting: the model, its defences, and answers where it gives them.

    Calibrated noise goes on the parameters; the other defences on whatever is released. A network
    that was trained ``before`` on other records, which everybody has, starts from there.
    """
    from exhume.training import Answers
    from exhume.training.answers import probes

    release = table.release
    mechanism: Mechanism = _started_before(_model(table, fixed_set, seed), before, seed)
    parameters = [d for d in release.defences if isinstance(d, OutputPerturbationTable)]
    mechanism = defended(mechanism, parameters, len(fixed_set) + 1)
    if release.kind == "outputs":
        count = release.queries or 2 * (int(np.prod(fixed_set.record_shape)) + 1)
        queries = probes(fixed_set, count, rng=stream(seed, "queries"))
        mechanism = Answers(mechanism, queries, Answer(release.answer))
    sent = [d for d in release.defences if not isinstance(d, OutputPerturbationTable)]
    return defended(mechanism, sent, len(fixed_set) + 1)


def build_batch_mechanism(
    table: SettingTable,
    record_shape: tuple[int, ...],
    classes: tuple[Label, ...],
    pool: Records | None,
    seed: int,
    *,
    state: Mapping[str, Array] | None = None,
) -> Mechanism:
    """Return the mechanism of a gradient, an update or weights alone, with its defences.

    The parameters are ``state`` where given, else drawn, and trained on ``pool`` where the table
    has a warm-up.
    """
    from exhume.training import SGD
    from exhume.training.gradient import Aggregate, GradientStep, LocalSteps, Step

    release, training = table.release, table.knowledge.training
    assert isinstance(release, NetworkReleaseTable)
    if release.alone:
        trained = _alone(table, release, record_shape, classes, seed)
        return defended(trained, release.defences, table.batch or 1)
    network = _architecture(release, record_shape, len(classes))
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
    inside = [d for d in defences if isinstance(d, INSIDE)] if training is not None else []
    mechanism = defended(step, inside, records)
    if training is not None:
        assert isinstance(mechanism, Step)
        optimiser = _optimiser(training)
        if not isinstance(optimiser, SGD):
            raise InputError("an update's local steps are gradient descent: optimiser = 'sgd'")
        batches = _batches(training, seed if table.knowledge.order else None)
        mechanism = LocalSteps(mechanism, optimiser, training.epochs, batches)
    if release.clients is not None:
        mechanism = Aggregate(mechanism, release.clients)
    return defended(mechanism, [d for d in defences if d not in inside], records)


def _imprinted(
    step: GradientStep, table: ImprintTable, pool: Records | None, seed: int
) -> GradientStep:
    """Return the step that a malicious server asks for instead."""
    from exhume.attacks.analytic import Imprint
    from exhume.knowledge import Knowledge

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
    """Return the parameters and buffers that a gradient is taken at; None where they are drawn."""
    if given is not None:
        own = network.parameter_shapes()
        buffers = {name: array for name, array in given.items() if name not in own}
        return {name: given[name] for name in given if name in own}, buffers or None
    if release.warm_up is None:
        return None, None
    if pool is None:
        raise InputError("warm_up trains on data.shadow_targets, and there are none")
    state = _warmed_up(network, classes, pool, release.warm_up, seed)
    return state.parameters, state.buffers or None


@lru_cache(maxsize=4)
def _warmed_up(
    network: Network, classes: tuple[Label, ...], pool: Records, warm: WarmUpTable, seed: int
) -> State:
    """Train a little on ``pool``; settings that differ in their defence alone share it."""
    from exhume.models.trained import train_a_little
    from exhume.training import Training

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
    return _network(table, table.release, fixed_set, seed)


def _started_before(model: Model, before: Records | None, seed: int) -> Model:
    """Return a training as it starts from what it ended in on other records."""
    from exhume.shadows.starting import GivenInitialisation
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
    outputs = 1 if classes is None else len(classes)
    network = _architecture(release, fixed_set.record_shape, outputs)
    return _trained(table, release, network, classes, seed)


def _trained(
    table: SettingTable,
    release: NetworkReleaseTable,
    network: Network,
    classes: tuple[Label, ...] | None,
    seed: int,
) -> Model:
    """Return the training of a network as the table has it."""
    from exhume.training import Training

    training, knowledge = table.knowledge.training, table.knowledge
    assert training is not None
    seed = seed if training.seed is None else training.seed
    return Training(
        network,
        classes,
        _optimiser(training),
        training.epochs,
        _batches(training, seed if knowledge.order else None),
        _initialisation(training, seed if knowledge.initial is True else None),
        _clipping(training),
        training.precision,
        release.device,
    )


def _alone(
    table: SettingTable,
    release: NetworkReleaseTable,
    record_shape: tuple[int, ...],
    classes: tuple[Label, ...],
    seed: int,
) -> Model:
    """Return the training of a network whose weights are all there is, with the loss it names."""
    from exhume.training.stationary import Stationary

    training = table.knowledge.training
    assert training is not None
    single = training.loss in ("logistic", "squared-error")
    network = _architecture(release, record_shape, 1 if single else len(classes))
    if training.loss != "logistic":
        return _trained(table, release, network, None if single else classes, seed)
    seed = seed if training.seed is None else training.seed
    start = seed if table.knowledge.initial is True else None
    return Stationary(
        *(network, classes, training.weight_decay, training.learning_rate, training.momentum),
        steps=training.epochs,
        rounds=0,
        initial=_initialisation(training, start),
    )


def _architecture(
    table: NetworkReleaseTable, record_shape: tuple[int, ...], outputs: int
) -> Network:
    from exhume.models import CNN, MLP, Activation, Convolution, Imported
    from exhume.models.convnet import ConvNet
    from exhume.models.lenet import LeNet
    from exhume.models.resnet import ResNet, resnet20
    from exhume.models.two_layer import TwoLayer

    if table.foreign:
        return Imported(record_shape, outputs, table.model)
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


def _optimiser(table: TrainingTable) -> SGD | Adam:
    from exhume.training import SGD, Adam

    if table.optimiser == "sgd":
        return SGD(table.learning_rate, table.momentum, table.weight_decay)
    return Adam(table.learning_rate, weight_decay=table.weight_decay)


def _batches(table: TrainingTable, seed: int | None) -> Batches | None:
    from exhume.training import Batches

    return None if table.batch_size is None else Batches(table.batch_size, seed, table.poisson)


def _initialisation(table: TrainingTable, seed: int | None) -> Initialisation:
    return Initialisation(Scheme(table.initialisation), seed)


def _clipping(table: TrainingTable) -> Clipping | None:
    from exhume.training import Clipping

    given = table.clipping
    return None if given is None else Clipping(given.norm, given.noise_multiplier)


def _classes(fixed_set: Records) -> tuple[int | float | str, ...]:
    return tuple(np.unique(fixed_set.labels).tolist())


def _classifies(fixed_set: Records) -> bool:
    """Whole numbers and words are classes; anything else is a response to predict."""
    labels = fixed_set.labels
    return labels.dtype.kind not in "f" or np.array_equal(labels, np.rint(labels))
