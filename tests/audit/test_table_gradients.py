"""Audits of gradients of mixed tables: rows out, values and whole records right, a blind guess."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.audit import small

from exhume.audit import Serial, run
from exhume.audit.attack_options import attack_names
from exhume.audit.threat_model import threat_model
from exhume.metrics.names import SHARES
from exhume.models.public_units import PublicUnits
from exhume.protocol.errors import InputError
from exhume.protocol.seeds import stream
from exhume.training.gradient import gradient_step

NAMED = """
[[setting]]
name = "rows"
data = { name = "diabetes-mixed" }
[setting.release]
kind = "gradient"
model = "mlp"
hidden = [60]
activation = "relu"
batch_size = 2
[setting.options]
tableak = { steps = 300, restarts = 4 }
"""
WITH_FILE = NAMED.replace('{ name = "diabetes-mixed" }', '{ file = "FILE", label = "ill" }')


def test_rows_come_out_beside_the_blind_guess(tmp_path: Path) -> None:
    plan = small.plan(NAMED, small.audit(4, attacks='["tableak"]'))
    summary = run(plan, tmp_path / "run", Serial())
    rows = {row.attack: row for row in summary.rows}
    found, blind = rows["tableak"].metrics, rows["oblivious"].metrics
    assert set(SHARES) < set(found)
    assert found["values-right"].mean == found["records-right"].mean == 1.0
    assert blind["values-right"].mean < 0.7
    assert blind["records-right"].mean == 0.0


def test_columns_and_units_are_part_of_the_threat_model() -> None:
    plan = small.plan(NAMED, small.audit(4))
    setting = plan.setting(0)
    assert setting.schema is not None
    told = " ".join(threat_model(setting))
    assert "442 rows: 4 targets, 200 like the targets, 238 left out." in told
    assert "a batch of 2 records (10 columns each)" in told
    step = gradient_step(setting.mechanism)
    assert step is not None
    assert isinstance(step.network, PublicUnits)
    names = attack_names(plan.config.setting[0], plan.config.audit)
    assert names[0] == "tableak"
    assert {"first-layer", "sparsity", "cocktail"} < set(names)


def a_file(folder: Path, *, mixed: bool) -> Path:
    rng, path = stream(0, "rows"), folder / "patients.csv"
    rows = ["age,smoker,dose,ill"]
    for i in range(60):
        smoker = ("never", "former", "yes")[int(rng.integers(3))] if mixed else rng.integers(3)
        dose = "" if mixed and i == 7 else f"{rng.normal(3, 1):.3f}"
        rows.append(f"{rng.integers(20, 80)},{smoker},{dose},{i % 2}")
    path.write_text("\n".join(rows) + "\n")
    return path


def test_a_file_with_text_and_missing_cells_is_read_as_rows(tmp_path: Path) -> None:
    toml = WITH_FILE.replace("FILE", str(a_file(tmp_path, mixed=True)))
    setting = small.plan(toml, small.audit(4)).setting(0)
    assert setting.schema is not None
    assert setting.schema.names == ("age", "smoker", "dose")
    assert setting.fixed_set.record_shape == (setting.schema.width,) == (6,)


def test_a_file_of_numbers_is_read_as_numbers(tmp_path: Path) -> None:
    path = a_file(tmp_path, mixed=False)
    setting = small.plan(WITH_FILE.replace("FILE", str(path)), small.audit(4)).setting(0)
    assert setting.schema is None
    assert setting.fixed_set.record_shape == (3,)


def test_columns_of_arrays_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", x=np.zeros((30, 3)), y=np.arange(30) % 2)
    data = f'{{ file = "{tmp_path / "rows.npz"}", columns = {{ a = "integer" }} }}'
    toml = NAMED.replace('{ name = "diabetes-mixed" }', data).split("[setting.options]")[0]
    with pytest.raises(InputError, match="columns goes with"):
        small.plan(toml, small.audit(4)).setting(0)


def test_columns_by_name_are_known_of_every_row(tmp_path: Path) -> None:
    known = "\n[setting.knowledge]\nattributes = ['age', 'sex']\n"
    plan = small.plan(NAMED + known, small.audit(4, attacks='["tableak"]'))
    setting = plan.setting(0)
    assert setting.schema is not None
    assert setting.known_columns == setting.schema.entries_of(["age", "sex"])
    told = setting.knowledge(0, 1).known_attributes
    assert told is not None
    assert setting.targets is not None
    assert np.array_equal(told.values[:, told.mask], setting.targets.x[:2][:, told.mask])
    assert np.all(told.values[:, ~told.mask] == 0.0)
    summary = run(plan, tmp_path / "run", Serial())
    rows = {row.attack: row for row in summary.rows}
    assert rows["tableak"].metrics["values-right"].mean == 1.0
    assert rows["conditional-guess"].metrics["values-right"].mean < 0.7
    assert "About them it knows age, sex." in " ".join(threat_model(setting))


def test_columns_are_not_known_of_weights_alone() -> None:
    weights = NAMED.split("[setting.options]")[0].replace('"gradient"', '"weights"')
    known = "attributes = ['age']\ntraining = { learning_rate = 0.1, epochs = 1 }\n"
    with pytest.raises(InputError, match="attributes are not supported for weights of a batch"):
        small.config(f"{weights}\n[setting.knowledge]\n{known}")
