"""The contents of a folder that an audit can use, and the audit's file to start from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from exhume.data.estimator_files import PICKLES, SKOPS, converted
from exhume.protocol.errors import InputError

CHECKPOINTS = (".safetensors", ".pt", ".pth", ".ckpt")
ESTIMATORS = (SKOPS, *PICKLES)
"""Fitted estimators as objects; a pickle is converted first, since it may run code."""
TABLES = (".csv", ".npz")
MIXED = "pipelines:pipeline"
"""Where a function might be that returns a pipeline for a table with text."""
_FEW_CLASSES = 20


@dataclass(frozen=True)
class StarterAnswers:
    """What an audit is about: the file of a model or None, records, label column, and model."""

    released: Path | None
    data: Path | None
    label: str | None
    model: str
    hidden: tuple[int, ...] | None = None
    """The hidden widths of a released ``mlp``."""
    scaler: bool = False
    """Whether a scaler is released with a linear model."""

    mixed: bool = False
    """Whether the records are a table with text: only a pipeline is fitted to those."""

    @property
    def estimator(self) -> bool:
        """Whether an estimator is audited: a file with its settings, or one to be fitted."""
        return self.mixed or (self.released is not None and self.released.suffix in ESTIMATORS)

    @property
    def network(self) -> bool:
        """Whether the model is a network, of ours or of the user's own."""
        from exhume.config import NETWORKS

        if self.estimator:
            return False
        return self.model in NETWORKS or ":" in self.model or self.model.endswith(".pt2")


def files_in(folder: Path, endings: tuple[str, ...]) -> list[Path]:
    """Return the files of a folder with one of these endings, by name."""
    found = [path for path in folder.iterdir() if path.is_file() and path.suffix in endings]
    return sorted(found)


def columns_of(path: Path) -> list[str]:
    """Return the columns of a .csv table; none for another file."""
    if path.suffix != ".csv":
        return []
    import csv

    from exhume.data.reading import explained

    kind = "a comma-separated table in UTF-8"
    with explained(path, kind), path.open(newline="", encoding="utf-8-sig") as file:
        return [cell.strip() for cell in next(csv.reader(file), [])]


def likely_model(released: Path | None, data: Path | None, label: str | None) -> str:
    """Guess the model: by the layers of a checkpoint, or else by the labels of the records."""
    if released is not None and released.suffix in CHECKPOINTS:
        if hidden_layers(released) is not None:
            return "mlp"
        if not holds(released, "coef"):
            return "package.module:function"
    if data is None:
        return "logistic"
    import numpy as np

    from exhume.data import read_records

    labels = read_records(data, label=label if data.suffix == ".csv" else None).y
    if labels is None or labels.dtype.kind == "f":
        return "ridge"
    count = len(np.unique(labels))
    if count == 2:
        return "logistic"
    return "multinomial" if count <= _FEW_CLASSES else "poisson"


def has_text(data: Path | None, label: str | None) -> bool:
    """Whether a .csv table has cells that are no numbers, and is a table nevertheless."""
    if data is None or data.suffix != ".csv":
        return False
    from exhume.data import read_records
    from exhume.data.frames import read_table

    try:
        read_records(data, label=label)
    except InputError:
        try:
            return len(read_table(data, label=label).records) > 0
        except InputError:
            return False
    return False


def hidden_layers(released: Path) -> tuple[int, ...] | None:
    """Return the hidden widths of a checkpoint that has the layers of ``mlp``, or None."""
    if released.suffix not in CHECKPOINTS:
        return None
    from exhume.data.array_files import read_arrays

    shapes = {name: array.shape for name, array in read_arrays(released).items()}
    places = range(1, len(shapes), 2)
    if len(shapes) < 4 or set(shapes) != {f"{p}.{k}" for p in places for k in ("weight", "bias")}:
        return None
    if any(len(shapes[f"{place}.weight"]) != 2 for place in places):
        return None
    return tuple(int(shapes[f"{place}.weight"][0]) for place in places[:-1])


def holds(released: Path, name: str) -> bool:
    """Return whether a checkpoint has an array of that name."""
    from exhume.data.array_files import read_arrays

    return released.suffix in CHECKPOINTS and name in read_arrays(released)


def starter(answers: StarterAnswers, name: str) -> str:
    """Return the text of an audit's file, with a comment for each thing to check."""
    parts = [f"# What can be rebuilt? Check the values, then run: exhume audit {name}"]
    if answers.estimator:
        parts += [_data(answers), _estimator(answers)]
    elif answers.released is None:
        parts += [_data(answers), _release(answers)]
    else:
        parts += [_release(answers), _known(answers)]
    if answers.network:
        parts.append(_training())
    parts.append(_audit(answers))
    return "\n\n".join(parts) + "\n"


def _data(answers: StarterAnswers) -> str:
    if answers.data is None:
        raise InputError(
            "there is nothing to audit: give --data with a .csv or .npz file of records, or "
            "--model with the file of a released model"
        )
    lines = ["[data]", f"file = {_quoted(answers.data)}"]
    if answers.label is not None:
        lines.append(f"label = {_quoted(answers.label)}")
    if answers.estimator:
        return "\n".join(
            [*lines, '# columns = { id = "ignored" }    # exhume data FILE shows them']
        )
    usual = "half of them" if answers.network else "all but targets"
    lines += [
        f"# fixed_set = 200         # records that the adversary knows; default: {usual}",
        '# units = "fixed-set"     # centre and scale columns by those records',
    ]
    if answers.network:
        lines.append("shadow_targets = 0        # records to learn attacks from, beside those")
    return "\n".join(lines)


def _release(answers: StarterAnswers) -> str:
    lines = ["[release]"]
    if answers.released is not None:
        lines.append(f"file = {_quoted(answers.released)}")
    lines.append(f"model = {_quoted(answers.model)}")
    if answers.network:
        lines += _layers(answers)
    else:
        lines += [
            "penalty = { strength = 1.0 }    # alpha of Ridge, 1/C of LogisticRegression",
            '# solver = { name = "lbfgs", tolerance = 1e-4 }    # scikit-learn\'s solver and tol',
            f"{'' if answers.scaler else '# '}standardise = true            "
            "# if a StandardScaler was fitted with it",
        ]
    lines.append('# defences = [{ name = "rounding", decimals = 3 }]    # exhume list defences')
    return "\n".join(lines)


def _estimator(answers: StarterAnswers) -> str:
    if answers.released is None:
        return "\n".join(
            [
                "[release]",
                "# Returns the unfitted pipeline; run with: exhume audit --trust-code",
                f"estimator = {_quoted(answers.model)}",
            ]
        )
    lines, path = ["[release]"], answers.released
    if path.suffix != SKOPS:
        lines.append("# A pickle may run code. Convert it first, in Python, if you trust it:")
        lines += [f"#   {line}" for line in converted(path)]
    return "\n".join([*lines, f"estimator = {_quoted(path.with_suffix(SKOPS))}"])


def _layers(answers: StarterAnswers) -> list[str]:
    if answers.model == "mlp":
        widths = list(answers.hidden or (10,))
        return [
            f"hidden = {widths}               # widths of the hidden layers",
            'activation = "elu"          # exhume list activations',
        ]
    if ":" in answers.model:
        return ["# A function that returns the module; run with: exhume audit --trust-code"]
    return []


def _known(answers: StarterAnswers) -> str:
    known = _quoted(answers.data) if answers.data is not None else '"known.npz"'
    return "\n".join(
        [
            "[knowledge]",
            "# The records that the adversary knows: all training records except the target.",
            f"fixed_set = {known}",
            '# initial = "init.pt"       # the parameters before the first step, if it has them'
            if answers.network
            else "# labels = true             # if the adversary knows the target's label",
        ]
    )


def _training() -> str:
    return "\n".join(
        [
            "# The training as it was: the adversary is assumed to know it.",
            "[knowledge.training]",
            'optimiser = "sgd"           # or "adam", "adamw", "rmsprop"',
            "learning_rate = 0.1",
            "momentum = 0.0",
            "epochs = 100",
            "# batch_size = 32           # default: all records in each step",
            "# seed = 0                  # initial parameters and order as Exhume draws them",
        ]
    )


def _audit(answers: StarterAnswers) -> str:
    if answers.released is None or answers.estimator:
        count = 16 if answers.network else 50
        return f"[audit]\ntargets = {count}                # more targets, narrower intervals"
    return (
        "[audit]\n"
        '# truth = "truth.npz"       # the target itself, to measure how close an attack came'
    )


def _quoted(value: object) -> str:
    import json

    # A basic string of TOML has the escapes of JSON.
    return json.dumps(str(value), ensure_ascii=False)
