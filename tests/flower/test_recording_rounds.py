"""Recording from within a strategy and a client, without a simulation: whatever goes wrong.

Messages, strategies and parameters are Flower's own.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp.mod import LocalDpMod, fixedclipping_mod
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideFixedClipping,
    FedAdam,
    FedAvg,
)
from flwr.supercore.task_identity import TaskIdentity
from tests.cli.command import invoke
from torch import nn

import exhume.flower
from exhume.audit.plan import make_plan
from exhume.config import load
from exhume.protocol.errors import InputError

RATE = 0.1


@pytest.fixture(autouse=True)
def _as_in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower's runtime says who a process is, and messages are signed with that."""
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))


def known(**changed: Any) -> exhume.flower.LocalTraining:
    settings = {"learning_rate": RATE, "value_range": (0, 1), **changed}
    return exhume.flower.LocalTraining(net(), (3,), **settings)


def records(client: int, count: int = 2) -> tuple[np.ndarray, np.ndarray]:
    draws = np.random.default_rng(client)
    return draws.random((count, 3), dtype=np.float32), draws.integers(2, size=count)


class Nodes:
    """Flower's grid, as far as a strategy asks it who is there."""

    def get_node_ids(self) -> list[int]:
        return [11, 22]


def answered(order: Message, count: int = 2, arrays: ArrayRecord | None = None) -> Message:
    """Train a step on a client's own records, and answer the order of a round."""
    model = net()
    model.load_state_dict(order.content["arrays"].to_torch_state_dict())
    x, y = (torch.tensor(part) for part in records(order.metadata.dst_node_id, count))
    nn.functional.cross_entropy(model(x), y).backward()
    torch.optim.SGD(model.parameters(), lr=RATE).step()
    told = MetricRecord({"num-examples": count})
    sent = arrays or ArrayRecord(model.state_dict())
    return Message(RecordDict({"arrays": sent, "metrics": told}), reply_to=order)


def a_round(strategy: Any, number: int = 1, answer: Any = answered) -> ArrayRecord | None:
    """Have the strategy lead a round with two clients, as its own loop does."""
    start = ArrayRecord(net().state_dict())
    orders = strategy.configure_train(number, start, ConfigRecord(), Nodes())
    arrays, _ = strategy.aggregate_train(number, [answer(order) for order in orders])
    return arrays


def watched(out: Path, strategy: Any = None, **settings: Any) -> tuple[Any, Any]:
    strategy = strategy or FedAvg()
    recorder = exhume.flower.watch(strategy, known(**settings), out=out, similar=records(99, 20))
    return strategy, recorder


def stored(out: Path) -> set[str]:
    return {str(path.parent.relative_to(out)) for path in out.rglob("audit.toml")}


ROUND = {f"round-0001/{name}" for name in ("client-11", "client-22", "aggregate")}


def test_a_watched_strategy_does_what_it_did(tmp_path: Path) -> None:
    strategy, recorder = watched(tmp_path / "rounds")
    found, plain = a_round(strategy), a_round(FedAvg())
    for name, array in plain.items():
        np.testing.assert_array_equal(found[name].numpy(), array.numpy())
    assert stored(tmp_path / "rounds") == ROUND
    assert not recorder.attempts.problems


def test_two_runs_in_one_folder_keep_the_first(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    strategy, _ = watched(tmp_path / "rounds")
    a_round(strategy)
    kept = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    again, _ = watched(tmp_path / "rounds")
    assert a_round(again, 2) is not None
    # The same strategy, led through its rounds again.
    assert a_round(strategy, 1) is not None
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == kept
    said = capfd.readouterr().err.splitlines()
    assert ["holds rounds already" in said[0], "holds this round already" in said[1]] == [True] * 2
    assert len(said) == 2


def test_a_full_disk_stops_no_training_and_keeps_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    strategy, _ = watched(tmp_path / "rounds")
    a_round(strategy)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("exhume.data.updates.write_quickly", full)
    assert a_round(strategy, 2) is not None
    monkeypatch.undo()
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert "No space left on device; training goes on, and what is stored is kept" in said
    assert stored(tmp_path / "rounds") == ROUND
    assert len(load(tmp_path / "rounds").setting) == 3


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"mods": [lambda *_: None]}, "the mod <lambda> is not understood"),
        ({"learning_rate": "lr"}, "the round's config has no 'lr', the learning rate"),
    ],
)
def test_what_is_not_known_is_said_in_one_line(
    settings: dict[str, Any], said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    strategy, _ = watched(tmp_path / "rounds", **settings)
    assert a_round(strategy) is not None
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 1
    assert said in lines[0]
    assert not stored(tmp_path / "rounds")


def test_a_wrong_answer_is_left_out_and_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def answer(order: Message) -> Message:
        other = ArrayRecord(nn.Linear(3, 2).state_dict())
        return answered(order, arrays=other if order.metadata.dst_node_id == 22 else None)

    class Lenient(FedAvg):
        """FedAvg refuses such answers itself; a strategy of one's own may not."""

        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            return super().aggregate_train(server_round, list(replies)[:1])

    strategy, _ = watched(tmp_path / "rounds", Lenient())
    a_round(strategy, answer=answer)
    lines = capfd.readouterr().err.splitlines()
    assert stored(tmp_path / "rounds") == {"round-0001/client-11"}
    assert "not the model's state dict: there is no parameter '0.weight'" in lines[0]


def test_an_aggregate_that_is_no_mean_is_not_called_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    strategy, _ = watched(tmp_path / "rounds", FedAdam())
    a_round(strategy)
    assert "the aggregate is not the clients' mean" in capfd.readouterr().err
    assert stored(tmp_path / "rounds") == ROUND - {"round-0001/aggregate"}


def test_replies_that_are_all_the_same_are_sums(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Secure aggregation puts the sum in place of each client's own, told of or not."""
    strategy, _ = watched(tmp_path / "rounds")
    total = ArrayRecord({n: p + 0.01 for n, p in net().state_dict().items()})
    a_round(strategy, answer=lambda order: answered(order, arrays=total))
    assert "the server sees sums only" in capfd.readouterr().err
    assert stored(tmp_path / "rounds") == {"round-0001/aggregate"}


def test_clients_of_different_size_are_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    strategy, _ = watched(tmp_path / "rounds")
    a_round(strategy, answer=lambda order: answered(order, order.metadata.dst_node_id // 11))
    assert "clients have 1 to 2 records" in capfd.readouterr().err
    assert stored(tmp_path / "rounds") == ROUND


def test_an_update_whose_training_nobody_told_asks_for_it(tmp_path: Path) -> None:
    strategy, _ = watched(tmp_path / "rounds", learning_rate=None)
    a_round(strategy)
    found = invoke("audit", tmp_path / "rounds", "--trust-code", "--out", tmp_path / "out")
    assert "needs knowledge.training" in found.error


def test_clipping_that_the_server_orders_is_in_the_audit(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Flower's wrapper says the norm in the round's config, and adds noise to the mean."""
    private = DifferentialPrivacyClientSideFixedClipping(FedAvg(), 1.0, 0.25, 2)
    strategy, _ = watched(tmp_path / "rounds", private, mods=[fixedclipping_mod])
    a_round(strategy)
    assert "the aggregate is not the clients' mean" in capfd.readouterr().err
    setting = make_plan(load(tmp_path / "rounds" / "round-0001" / "client-11")).setting(0)
    assert setting.mechanism.norm == 0.25


def test_dropout_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5))
    training = exhume.flower.LocalTraining(model, (3,), RATE)
    exhume.flower.watch(FedAvg(), training, out=tmp_path / "rounds")
    assert "Dropout is stored in evaluation mode" in capfd.readouterr().err


def test_an_audit_without_rounds_leaves_the_users_own_metrics(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _, recorder = watched(tmp_path / "rounds")
    evaluate = recorder.audit(then=lambda *_: MetricRecord({"loss": 2.0}))
    assert dict(evaluate(1, None)) == {"loss": 2.0}
    assert "round-0001" in capfd.readouterr().err
    assert recorder.audit()(0, None) is None
    with pytest.raises(InputError, match="every must be at least 1, got 0"):
        recorder.audit(every=0)


class TestNames:
    """Arrays get the names of the model's state dict, in whatever form an app sends them."""

    @pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod."])
    def test_by_name(self, prefix: str) -> None:
        state = {name: tensor.numpy() for name, tensor in net().state_dict().items()}
        found = known().named({f"{prefix}{n}": state[n] for n in sorted(state)})
        assert list(found) == list(state)
        assert all(found[name] is array for name, array in state.items())

    def test_by_place(self) -> None:
        model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))
        training = exhume.flower.LocalTraining(model, (3,), RATE)
        state = [tensor.numpy() for tensor in model.state_dict().values()]
        whole = training.named({str(i): array for i, array in enumerate(state)})
        assert list(whole) == list(model.state_dict())
        parameters = [p.detach().numpy() for p in model.parameters()]
        found = training.named({str(i): array for i, array in enumerate(parameters)})
        assert list(found) == [name for name, _ in model.named_parameters()]
        with pytest.raises(InputError, match="3 arrays without names can't be those"):
            training.named({str(i): array for i, array in enumerate(state[:3])})

    def test_of_another_model(self) -> None:
        state = {name: tensor.numpy().T for name, tensor in net().state_dict().items()}
        with pytest.raises(InputError, match="transposed"):
            known().named(state)


class TestKeepUpdates:
    """A client's mod: the reply passes it as it is."""

    def _passed(self, keep: Any, answer: Any = answered, node: int = 11) -> Message:
        sent = {"arrays": ArrayRecord(net().state_dict()), "config": ConfigRecord()}
        order = Message(RecordDict(sent), dst_node_id=node, message_type=MessageType.TRAIN)
        order.content["config"]["server-round"] = 1
        reply = answer(order)
        assert keep(order, SimpleNamespace(node_id=node), lambda *_: reply) is reply
        return reply

    def test_it_stores_what_leaves(self, tmp_path: Path) -> None:
        keep = exhume.flower.KeepUpdates(
            known(), tmp_path / "own", lambda context: records(context.node_id), records(99, 20)
        )
        self._passed(keep)
        setting = make_plan(load(tmp_path / "own")).setting(0)
        np.testing.assert_array_equal(setting.targets.x, records(11)[0])
        own = setting.mechanism.publish(setting.targets, rng=np.random.default_rng(0))
        for name, change in own.arrays():
            np.testing.assert_allclose(setting.given.changes[name], change, atol=2.0**-22)

    def test_a_second_run_keeps_the_first(
        self, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        keep = exhume.flower.KeepUpdates(known(), tmp_path / "own")
        self._passed(keep)
        kept = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        self._passed(keep)
        assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == kept
        assert "holds this round already" in capfd.readouterr().err

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (lambda m: m.content["arrays"].clear(), "secure aggregation masks them"),
            (lambda m: m.content["metrics"].clear(), "does not say num-examples"),
        ],
    )
    def test_what_can_not_be_stored_is_said(
        self, change: Any, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        def answer(order: Message) -> Message:
            reply = answered(order)
            change(reply)
            return reply

        self._passed(exhume.flower.KeepUpdates(known(), tmp_path / "own"), answer)
        assert said in capfd.readouterr().err
        assert not stored(tmp_path)

    def test_the_noise_of_a_mod_is_told(self, tmp_path: Path) -> None:
        mod = LocalDpMod(clipping_norm=0.5, sensitivity=1.0, epsilon=2.0, delta=1e-5)
        self._passed(exhume.flower.KeepUpdates(known(mods=[mod]), tmp_path / "own"))
        mechanism = make_plan(load(tmp_path / "own")).setting(0).mechanism
        assert mechanism.size == pytest.approx(np.sqrt(2 * np.log(1.25e5)) / 2)
        assert mechanism.inner.norm == 0.5
