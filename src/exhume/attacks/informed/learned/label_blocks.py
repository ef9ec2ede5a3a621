"""Ridge on more shadow models than one dense kernel holds: in blocks of at most 8,192 models.

A larger set has one block per label: the models of that label, and as many others as have room. The
penalty is sought on the first block, and all blocks have it. Memory: that of one block (16 bytes ×
models², 1.1 GB at most), and 20 bytes × shadows × entries of a record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from exhume.attacks.informed.learned.held_out_errors import HeldOutErrors, spacing
from exhume.attacks.informed.learned.kernel_ridge import PENALTIES, Kernel, directions
from exhume.attacks.informed.learned.shadow_regression import (
    TRIAL,
    Board,
    Flags,
    Range,
    choose,
    responses_of,
    squared_errors,
    trusted_line,
    with_misread,
)
from exhume.attacks.informed.learned.streamed_kernel import (
    BlockRegression,
    Places,
    StreamedDirections,
    block_regression,
    sought,
)
from exhume.protocol.arrays import Array, FloatArray
from exhume.runtime.cache_rows import blocks_of
from exhume.shadows import ShadowSet
from exhume.shadows.order import FEWEST, MOST_BYTES

DENSE = 4096
"""Up to this many shadow models, eigendecompositions try every penalty."""
BLOCK = 8192
"""The most shadow models in a block."""
SOUGHT = 2048
"""How many models of a block a penalty is sought on."""


@dataclass(frozen=True, eq=False)
class LearnedByLabel:
    """The attack learned from a large set: ``mixed`` predicts the label, then its block the record.

    A label without shadow models is read by ``mixed``. ``misread`` flags the models of
    ``mixed`` whose label it predicts wrongly when they are left out. ``lines`` convert the gap to
    the nearest model to an expected squared error, by label (None: ``mixed``).
    """

    shadows: ShadowSet
    mixed: BlockRegression
    blocks: Mapping[object, BlockRegression]
    misread: Flags
    evidence: HeldOutErrors
    lines: Mapping[object, tuple[float, float]]

    @property
    def kernel(self) -> Kernel:
        """The kernel of the blocks."""
        return next(iter(self.blocks.values()), self.mixed).kernel

    @property
    def by_label(self) -> bool:
        """Whether labels have blocks of their own."""
        return bool(self.blocks)

    @property
    def penalty(self) -> float:
        """The penalty of the largest block."""
        return next(iter(self.blocks.values()), self.mixed).penalty

    @property
    def accuracy(self) -> float:
        """The leave-one-out accuracy of the predicted labels of shadow targets."""
        return 1.0 - float(self.misread.mean())

    def label(self, difference: FloatArray) -> Array | None:
        """Return the most likely label (1,), or None where no block depends on it."""
        return self.named(self.mixed.read(difference)[0][self.size :]) if self.blocks else None

    def read(
        self, difference: FloatArray, label: Array | None
    ) -> tuple[FloatArray, FloatArray, float]:
        """Return the record (d,), the scores of its label, and the expected squared error."""
        name = None if label is None else label[0].item()
        name = name if name in self.blocks else None
        found, gap = self.blocks.get(name, self.mixed).read(difference, name)
        line = self.lines[name]
        return found[: self.size], found[self.size :], line[0] + line[1] * gap

    @property
    def size(self) -> int:
        """The number of entries of a record."""
        return int(np.prod(self.shadows.targets.record_shape))

    def named(self, scores: FloatArray) -> Array:
        """Return the label (1,) with these scores."""
        classes = self.shadows.order.training.classes
        return np.asarray(scores[:1] if classes is None else [classes[int(np.argmax(scores))]])


def learned_by_label(
    shadows: ShadowSet, label_known: bool, value_range: Range | None
) -> LearnedByLabel:
    """Choose the kernels on the first shadow models, then fit a block per label.

    Leave-one-out errors on the shadow models, clipped to ``value_range``, decide everything.
    """
    trial = shadows.first(max(FEWEST, min(TRIAL, MOST_BYTES // (4 * shadows.differences.shape[1]))))
    board = Board(trial, directions(trial.differences, shadows.order.layout.first_block()))
    chosen = choose(board, len(trial), label_known, value_range)
    fit, every = _BlockFits(shadows), np.arange(len(shadows))
    # Predictions by label, and of the label, need not have the same penalty.
    kernel = chosen.labeller if chosen.by_label else chosen.kernel
    mixed = _BlockFits(shadows)(kernel, every[:BLOCK])
    blocks = dict[object, BlockRegression]()
    if chosen.by_label:
        labels = shadows.targets.labels
        wanted = np.unique(labels)
        if len(every) <= BLOCK:
            whole = fit(chosen.kernel, every, labels)
            blocks = {name.item(): whole for name in wanted}
        for name in wanted[: 0 if blocks else None]:
            # Models of the label first, then others: a block has them in the order of the set.
            first = np.argsort(labels != name, kind="stable")[:BLOCK]
            blocks[name.item()] = fit(chosen.kernel, np.sort(first), labels)
    return _judged(shadows, mixed, blocks, label_known, value_range)


class _BlockFits:
    """Fits blocks of a set, all with the penalty that was best for the first one.

    It is sought on the block's first ``SOUGHT`` models: the noise that it stands for does not
    depend on their number.
    """

    def __init__(self, shadows: ShadowSet) -> None:
        self._shadows = shadows
        largest = (float(np.abs(rows).max()) for _, rows in blocks_of(shadows.differences))
        self._size = max(largest) or 1.0
        self._place: int | None = None

    def __call__(
        self, kernel: Kernel, places: Places, labels: Array | None = None
    ) -> BlockRegression:
        """Return the regression on the shadow models at these places, by label if there are any."""
        if self._place is None:
            search = sought(len(PENALTIES) // 3)
            _, self._place = self._regression(kernel, places[:SOUGHT], labels, search)
        place = self._place
        return self._regression(kernel, places, labels, lambda _: place)[0]

    def _regression(
        self,
        kernel: Kernel,
        places: Places,
        labels: Array | None,
        penalty: Callable[[Callable[[int], float]], int],
    ) -> tuple[BlockRegression, int]:
        shadows = self._shadows
        split = shadows.order.layout.first_block()
        compared = StreamedDirections.of(shadows.differences, places, split, self._size)
        targets = shadows.targets.take(places)
        return block_regression(
            *(compared, kernel, responses_of(shadows.order.training, targets), penalty),
            judged=int(np.prod(targets.record_shape)),
            labels=None if labels is None else labels[places],
        )


def _judged(
    shadows: ShadowSet,
    mixed: BlockRegression,
    blocks: Mapping[object, BlockRegression],
    label_known: bool,
    value_range: Range | None,
) -> LearnedByLabel:
    """Return the fitted blocks with their leave-one-out errors."""
    targets, training = shadows.targets, shadows.order.training
    x = np.asarray(targets.x).reshape(len(targets), -1)
    size, first = x.shape[1], mixed.compared.places
    errors, lines = np.full(len(x), np.nan), dict[object, tuple[float, float]]()
    for name, block in [(None, mixed), *blocks.items()]:
        kept = np.ones(len(block.spread), bool) if name is None else block.labels == name
        places = block.compared.places[kept]
        own = squared_errors(block.left_out[kept, :size], x[places], value_range)
        errors[places], lines[name] = own, trusted_line(block.spread[kept], own)
    mean = x.mean(axis=0, dtype=np.float64)
    # The mean of the others, as in the dense regression, to one part in the number of models.
    blind = squared_errors(np.broadcast_to(mean, (len(first), size)), x[first], value_range)
    misread = np.zeros(len(first), dtype=bool)
    if training.classes is not None:
        named = mixed.left_out[:, size:].argmax(axis=1)
        misread = np.asarray(named != training.responses(targets.labels[first]))
    seen = errors[first]
    if blocks and not label_known:
        seen = with_misread(seen, blind, misread)
        # What wrong labels cost on average is added wherever a label is predicted.
        more = float(seen.mean() - errors[first].mean())
        lines = {name: (a + more, b) for name, (a, b) in lines.items()}
    evidence = HeldOutErrors(seen, blind, spacing(targets, shadows.order.fixed_set))
    return LearnedByLabel(shadows, mixed, blocks, misread, evidence, lines)
