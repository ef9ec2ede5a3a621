"""What a server sees of each round, stored from within its strategy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from exhume.data.array_files import read_arrays
from exhume.data.updates import BEFORE, TRUTH, UpdateFacts, write_named, write_update
from exhume.flower.audit_in_the_loop import IN_THE_LOOP, AuditInTheLoop
from exhume.flower.local_training import LocalTraining
from exhume.flower.messages import Reply, reply_of, values
from exhume.flower.recording import MODEL, Attempts, Pair, round_folder, similar_file
from exhume.protocol.arrays import Array
from exhume.protocol.errors import InputError
from exhume.protocol.records import Records
from exhume.runtime.durable import make_folder

AGGREGATE = "aggregate"
_MESSAGES, _LEGACY = ("configure_train", "aggregate_train"), ("configure_fit", "aggregate_fit")
_SAME = 1e-4
"""Means of float32 numbers in another order differ by far less, by another rule by far more."""


def watch(
    strategy: Any,
    training: LocalTraining,
    *,
    out: str | Path = "exhume-rounds",
    similar: Pair | None = None,
    truth: str | Path | None = None,
    secure: Any = None,
) -> RoundRecorder:
    """Store what a server sees of each round: the clients' updates, and their aggregate.

    ``strategy`` is any of Flower's, or a legacy one; it is watched from now on. ``out`` is a new
    folder, readable by its owner only. ``similar`` are records like the clients', (x, y), and
    ``truth`` is the folder of ``KeepUpdates`` in a rehearsal on one machine: with both, an audit
    says what attacks reached. ``secure`` is the ``SecAggPlusWorkflow``: the server sees sums only.
    """
    recorder = RoundRecorder(Path(out), training, None if truth is None else Path(truth), secure)
    recorder.attempts.attempt(lambda: recorder.start(similar))
    if not recorder.attempts.problems:
        recorder.attach(strategy)
    return recorder


class RoundRecorder:
    """Stores rounds from within a strategy, and audits them."""

    def __init__(
        self, folder: Path, training: LocalTraining, truth: Path | None, secure: Any
    ) -> None:
        self.folder, self.training, self.truth, self.secure = folder, training, truth, secure
        self.attempts = Attempts(folder)
        self._similar: Path | None = None
        self._sent: dict[str, Array] = {}
        self._config: dict[str, Any] = {}

    def start(self, similar: Pair | None) -> None:
        """Make the folder, with the model as a program."""
        if any(self.folder.glob("round-*")):
            raise InputError("it holds rounds already: choose another folder for this run")
        make_folder(self.folder)
        self.training.save(self.folder / MODEL)
        self._similar = similar_file(self.folder, similar)
        kinds = {type(layer).__name__ for layer in self.training.model.modules()}
        for kind in sorted(k for k in kinds if k.startswith(("BatchNorm", "Dropout"))):
            self.attempts.say(
                f"{kind} is stored in evaluation mode, clients train in another: the attacks may "
                "miss what there is"
            )

    def attach(self, strategy: Any) -> None:
        """Listen to a strategy as it begins and ends each round."""
        names = _MESSAGES if hasattr(strategy, _MESSAGES[0]) else _LEGACY
        configure, aggregate = (getattr(strategy, name) for name in names)

        def configured(server_round: int, arrays: Any, *rest: Any) -> Any:
            made = configure(server_round, arrays, *rest)
            if names is _LEGACY:
                configs: Any = [order.config for _, order in made or ()]
            else:
                configs = rest[:1]
            self.attempts.attempt(lambda: self._begin(arrays, configs))
            return made

        def aggregated(server_round: int, replies: Iterable[Any], *rest: Any) -> Any:
            replies = list(replies)
            made = aggregate(server_round, replies, *rest)
            self.attempts.attempt(lambda: self._end(server_round, replies, made[0]))
            return made

        setattr(strategy, names[0], configured)
        setattr(strategy, names[1], aggregated)

    def audit(
        self,
        every: int = 1,
        attacks: Sequence[str] | None = IN_THE_LOOP,
        then: Callable[..., Any] | None = None,
    ) -> AuditInTheLoop:
        """Return an ``evaluate_fn`` that audits every so many rounds, for the run's metrics."""
        return AuditInTheLoop(self.folder, self.attempts, every, attacks, then)

    def _begin(self, arrays: Any, configs: Sequence[Mapping[str, Any]]) -> None:
        self._sent = values(arrays)
        self._config = dict(configs[0]) if configs else {}

    def _end(self, number: int, replies: list[Any], made: Any) -> None:
        before, folder = self.training.named(self._sent), round_folder(self.folder, number)
        if (folder / BEFORE).exists():
            raise InputError("it holds this round already: choose another folder for this run")
        make_folder(folder)
        write_named(folder / BEFORE, before)
        told: list[Reply] = []
        for one in replies:
            self.attempts.attempt(lambda one=one: told.extend(reply_of(one)))  # type: ignore[misc]
        if self._only_sums(told):
            self.attempts.say("the server sees sums only: of each round the aggregate is stored")
        else:
            for reply in told:
                self.attempts.attempt(lambda one=reply: self._client(folder, one))  # type: ignore[misc]
        if made is not None and len(told) > 1:
            self._aggregate(folder, told, self.training.named(values(made)))

    def _only_sums(self, told: list[Reply]) -> bool:
        """Whether aggregation is secure: then every client's reply holds the same sum."""
        alike = [
            np.array_equal(array, told[0].arrays.get(name, np.nan))
            for one in told[1:]
            for name, array in one.arrays.items()
        ]
        return self.secure is not None or (bool(alike) and all(alike))

    def _client(self, folder: Path, one: Reply) -> None:
        facts, name = self.training.facts(one.records, self._config), f"client-{one.node}"
        self._write(folder / name, facts, self.training.named(one.arrays), [name])

    def _aggregate(self, folder: Path, told: list[Reply], after: dict[str, Array]) -> None:
        """Store the mean over clients: what secure aggregation shows, and what clients see."""
        sizes = [one.records for one in told]
        if self.secure is None and not _is_mean(after, told, self.training):
            raise InputError("the aggregate is not the clients' mean: the strategy changes it")
        if len({*sizes}) > 1:
            self.attempts.say(
                f"clients have {min(sizes)} to {max(sizes)} records; the aggregate is attacked as "
                "if they had the same number"
            )
        facts = self.training.facts(sum(sizes), self._config)
        mean = f'{{ name = "secure-aggregation", clients = {len(told)} }}'
        noise = () if self.secure is None else (_rounding(self.secure, len(told), sum(sizes)),)
        facts = replace(facts, defences=(*facts.defences, mean, *noise))
        self._write(folder / AGGREGATE, facts, after, [f"client-{one.node}" for one in told])

    def _write(
        self, folder: Path, facts: UpdateFacts, arrays: dict[str, Array], clients: list[str]
    ) -> None:
        near = (folder.parent / BEFORE, self.folder / MODEL, self._similar)
        truth = self._truth(folder.parent.name, clients)
        write_update(folder, facts, arrays, *near, truth=truth)

    def _truth(self, name: str, clients: list[str]) -> Records | None:
        """Return the clients' records, where a rehearsal has them all."""
        if self.truth is None:
            return None
        files = [self.truth / name / client / TRUTH for client in clients]
        if not all(path.is_file() for path in files):
            return None
        found = [read_arrays(path) for path in files]
        return Records(*(np.concatenate([one[key] for one in found]) for key in ("x", "y")))


def _rounding(workflow: Any, clients: int, records: int) -> str:
    """Return the noise of SecAgg+'s rounding: to a step up or down at random, then the mean.

    Its variance is at most a quarter of a squared step, and a sixth on average over positions.
    """
    step = 2.0 * workflow.clipping_range / workflow.quantization_range
    size = step * math.sqrt(clients / 6.0) * workflow.max_weight / records
    return f'{{ name = "noise", size = {size} }}'


def _is_mean(after: dict[str, Array], told: list[Reply], training: LocalTraining) -> bool:
    each = [training.named(one.arrays) for one in told]
    shares = np.array([one.records for one in told], dtype=np.float64)
    for name, array in after.items():
        mean = np.average([one[name] for one in each], axis=0, weights=shares)
        size = max(float(np.abs(mean).max(initial=0.0)), 1e-12)
        if np.abs(array - mean).max(initial=0.0) > _SAME * size:
            return False
    return True
