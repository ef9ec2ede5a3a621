"""Federated learning by Flower, recorded and audited as it runs: by a client, and by the server.

    known = exhume.flower.LocalTraining(Net(), (28, 28), learning_rate=0.1)

    @app.train(mods=[exhume.flower.KeepUpdates(known, out="clients")])    # the client's app

    recorder = exhume.flower.watch(strategy, known, out="rounds")         # the server's app
    strategy.start(grid, arrays, evaluate_fn=recorder.audit(every=5))

``exhume audit rounds`` attacks all that was recorded.
"""

from exhume.flower.audit_in_the_loop import IN_THE_LOOP, AuditInTheLoop
from exhume.flower.keep_updates import KeepUpdates
from exhume.flower.local_training import LocalTraining
from exhume.flower.round_recorder import RoundRecorder, watch

__all__ = [
    "IN_THE_LOOP",
    "AuditInTheLoop",
    "KeepUpdates",
    "LocalTraining",
    "RoundRecorder",
    "watch",
]
