"""A client's mod that stores what the client sends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exhume.data.updates import AFTER, BEFORE, write_named, write_update
from exhume.flower.local_training import LocalTraining
from exhume.flower.messages import in_records, records_in
from exhume.flower.recording import MODEL, Attempts, Pair, pair, round_folder, similar_file
from exhume.protocol.arrays import Array
from exhume.protocol.errors import InputError
from exhume.runtime.durable import make_folder


@dataclass(eq=False)
class KeepUpdates:
    """A client's mod: it stores each update that passes it, with what the client knows.

    As the first of an app's mods it sees what leaves the client, as the last what training made.
    ``records(context)`` returns the client's own, (x, y), so that an audit can tell what came out.
    ``similar`` are records like them that nobody trained on.
    """

    training: LocalTraining
    out: str | Path = "exhume-client"
    records: Callable[[Any], Pair] | None = None
    similar: Pair | None = None

    def __post_init__(self) -> None:
        self._attempts = Attempts(Path(self.out))

    def __call__(self, msg: Any, ctxt: Any, call_next: Callable[[Any, Any], Any]) -> Any:
        """Pass the message on, and store what comes back."""
        trains = msg.metadata.message_type.startswith("train")
        sent = in_records(msg.content) if trains else {}
        config = {k: v for one in msg.content.config_records.values() for k, v in one.items()}
        reply = call_next(msg, ctxt)
        if sent and not reply.has_error():
            self._attempts.attempt(lambda: self._store(ctxt, sent, config, reply.content))
        return reply

    def _store(
        self, ctxt: Any, sent: dict[str, Array], config: dict[str, Any], content: Any
    ) -> None:
        if not (came := in_records(content)):
            raise InputError(
                "the reply holds no parameters, since secure aggregation masks them: put this mod "
                "after it in the list, to see them before"
            )
        own = None if self.records is None else pair(self.records(ctxt))
        count = records_in(content) or (0 if own is None else len(own))
        if not count:
            raise InputError("the reply does not say num-examples, and no records are given")
        root, client = Path(self.out), f"client-{ctxt.node_id}"
        number = config.get("server-round", 1 + len(list(root.glob(f"*/{client}"))))
        folder = round_folder(root, int(number)) / client
        facts, before = self.training.facts(count, config), self.training.named(sent)
        after = self.training.named(came)
        if (folder / AFTER).exists():
            raise InputError("it holds this round already: choose another folder for this run")
        for one in (root, folder.parent, folder):
            make_folder(one)
        self.training.save(root / MODEL)
        write_named(folder / BEFORE, before)
        near = (folder / BEFORE, root / MODEL, similar_file(root, self.similar))
        write_update(folder, facts, after, *near, truth=own)
