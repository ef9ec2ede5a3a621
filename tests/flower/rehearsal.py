"""A user's own Flower project in one file: two clients, a module of their own, three rounds.

``python rehearsal.py FOLDER`` runs Flower's simulation three times, on this machine alone: as it
is, with local differential privacy, and with secure aggregation. Each leaves its metrics.
"""

from __future__ import annotations

import json
import shutil
import sys
import zlib
from pathlib import Path

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import nn

import exhume.flower

RECORDS, RATE = 3, 0.2


class Net(nn.Module):
    """Parameters in an order, and under names, of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(12, 64), nn.ReLU())
        self.head = nn.Linear(64, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


def drawn(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    draws = np.random.default_rng(seed)
    return draws.random((count, 3, 4), dtype=np.float32), draws.integers(4, size=count)


def own(context: Context) -> tuple[np.ndarray, np.ndarray]:
    return drawn(int(context.node_config["partition-id"]), RECORDS)


def trained(state: dict[str, torch.Tensor], context: Context, rate: float) -> Net:
    """Take a step; what Flower's mods draw for this client and round afterwards is seeded too."""
    sent = zlib.crc32(state["head.weight"].numpy().tobytes())
    np.random.seed([int(context.node_config["partition-id"]), sent])  # noqa: NPY002
    net = Net()
    net.load_state_dict(state)
    x, y = (torch.tensor(part) for part in own(context))
    nn.functional.cross_entropy(net(x), y).backward()
    torch.optim.SGD(net.parameters(), lr=rate).step()
    return net


def by_messages(folder: Path, mods: list[LocalDpMod]) -> dict[int, dict[str, float]]:
    """Run the message API; the round's config has the learning rate."""
    known = exhume.flower.LocalTraining(
        Net(), (3, 4), learning_rate="lr", value_range=(0, 1), mods=mods
    )
    keep = exhume.flower.KeepUpdates(known, out=folder / "clients", records=own)
    client, server = ClientApp(), ServerApp()

    @client.train(mods=[keep, *mods])
    def train(message: Message, context: Context) -> Message:
        rate = message.content["config"]["lr"]
        net = trained(message.content["arrays"].to_torch_state_dict(), context, rate)
        metrics = MetricRecord({"num-examples": RECORDS})
        sent = {"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}
        return Message(RecordDict(sent), reply_to=message)

    found = {}

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = FedAvg(fraction_evaluate=0.0)
        recorder = exhume.flower.watch(
            *(strategy, known),
            out=folder / "rounds",
            similar=drawn(9, 50),
            truth=folder / "clients",
        )
        attacks = ["first-layer"] if mods else ["sparsity"]
        result = strategy.start(
            grid,
            ArrayRecord(Net().state_dict()),
            num_rounds=3,
            train_config=ConfigRecord({"lr": RATE}),
            evaluate_fn=recorder.audit(2, attacks, then=lambda *_: MetricRecord({"own": 1.0})),
        )
        found.update({k: dict(v) for k, v in result.evaluate_metrics_serverapp.items()})

    simulated(server, client)
    return found


def by_secure_aggregation(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Run SecAgg+, which Flower has in its legacy API alone: arrays come without names."""
    from flwr.client import NumPyClient
    from flwr.client.mod import secaggplus_mod
    from flwr.common import ndarrays_to_parameters
    from flwr.server import LegacyContext, ServerConfig
    from flwr.server.strategy import FedAvg as LegacyFedAvg
    from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow

    known = exhume.flower.LocalTraining(
        Net(), (3, 4), learning_rate=RATE, value_range=(0, 1), mods=[secaggplus_mod]
    )
    keep = exhume.flower.KeepUpdates(known, out=folder / "clients", records=own)
    start = [array.numpy() for array in Net().state_dict().values()]

    class Client(NumPyClient):
        def __init__(self, context: Context) -> None:
            self.own_context = context

        def fit(self, parameters, config):
            names = list(Net().state_dict())
            state = {n: torch.tensor(a) for n, a in zip(names, parameters, strict=True)}
            net = trained(state, self.own_context, RATE)
            return [array.numpy() for array in net.state_dict().values()], RECORDS, {}

    def client_fn(context: Context):
        return Client(context).to_client()

    client, server, found = ClientApp(client_fn, mods=[secaggplus_mod, keep]), ServerApp(), {}

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = LegacyFedAvg(
            fraction_evaluate=0.0,
            min_available_clients=2,
            initial_parameters=ndarrays_to_parameters(start),
        )
        workflow = SecAggPlusWorkflow(2.0 / 2.0, 2.0 / 2.0, max_weight=RECORDS)
        recorder = exhume.flower.watch(
            *(strategy, known),
            out=folder / "rounds",
            similar=drawn(9, 50),
            truth=folder / "clients",
            secure=workflow,
        )
        strategy.evaluate_fn = recorder.audit(3, ["first-layer"])
        legacy = LegacyContext(context, ServerConfig(num_rounds=3), strategy)
        DefaultWorkflow(fit_workflow=workflow)(grid, legacy)
        found.update(legacy.history.metrics_centralized)

    simulated(server, client)
    return found


def simulated(server: ServerApp, client: ClientApp) -> None:
    """Run two clients on a cluster of this process' own: a running one is not joined."""
    alone = {"num_cpus": 2, "address": "local", "include_dashboard": False}
    settings = {"client_resources": {"num_cpus": 2}, "init_args": alone}
    run_simulation(server, client, num_supernodes=2, backend_config=settings)


if __name__ == "__main__":
    private = LocalDpMod(clipping_norm=0.5, sensitivity=1.0, epsilon=4.0, delta=1e-5)
    for kind in ("plain", "private", "secure"):
        place = Path(sys.argv[1]) / kind
        place.mkdir()
        if kind != "plain":  # the same model, which need not be exported again
            for part in ("clients", "rounds"):
                (place / part).mkdir()
                shutil.copy(Path(sys.argv[1], "plain", part, "model.pt2"), place / part)
        torch.manual_seed(0)
        if kind == "secure":
            metrics = by_secure_aggregation(place)
        else:
            metrics = by_messages(place, [private] if kind == "private" else [])
        (place / "metrics.json").write_text(json.dumps(metrics))
