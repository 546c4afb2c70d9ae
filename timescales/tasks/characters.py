"""Language modelling by characters: name the next character of a text that never ends."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from timescales.tasks.data import text
from timescales.tasks.task import Batch, Spec, Task, check_choice, check_positive

STREAMS = 128  # evaluation reads a split in so many streams, whatever training does
IGNORED = -100  # the target where a stream has ended


class Characters(Task):
    """Penn Treebank and text8 by characters.

    Source: Chien et al. 2021, section 4.3, table 2, which gives corpora, batch (128), segments (150 or 500 steps) and
    epochs (50, PTB). Streams, carried state and clipping follow the benchmark that it cites (Chandar et al. 2019, NRU).

        input   \\n  a  e  r  _  b  a  n  k  n  o  t  e       the text, one character late
        target   a  e  r  _  b  a  n  k  n  o  t  e  _       every position is scored

    A split is cut into streams that are read side by side, segment by segment. state="carried": a segment begins where
    the one before ended, without its gradient, and a stream with zeros; "reset": every segment begins with zeros.
    Evaluation scores each character of a split exactly once (the first one after a line's end or, in text8, a space);
    training leaves out what is less than a step of all streams.
    embedding: numbers that are learned for a character, null for one-hot input. Chien et al.'s parameter counts for
    PTB, 2.15 million with 716 (LSTM) and 828 (pLSTM) units, come about with 20.
    Metrics: bpc, bits per character. Raises as `timescales.tasks.data.text` does.
    """

    def __init__(
        self,
        *,
        corpus: str = "ptb",
        length: int = 150,
        state: str = "carried",
        embedding: int | None = 20,
        batch_size: int = 128,
        allow_partial: bool = False,
        seed: int = 0,
        device: str = "cpu",
        data_root: str | None = None,
    ) -> None:
        check_choice("corpus", corpus, ("ptb", "text8"))
        check_choice("state", state, ("carried", "reset"))
        check_positive(length=length, embedding=1 if embedding is None else embedding)
        found = (text.ptb_characters if corpus == "ptb" else text.text8)(data_root, allow_partial)
        super().__init__(batch_size=batch_size, seed=seed, device=device, **found.sizes)
        self.length, self.symbols, self.partial = length, found.symbols, found.partial
        before = found.symbols.index("\n" if corpus == "ptb" else " ")
        if self.sizes["train"] < batch_size:
            raise ValueError(f"batch_size {batch_size} is more than the {self.sizes['train']} characters for training")
        self.streams = {
            "train": streams(found.train.to(self.device), batch_size, before, whole=False),
            "valid": streams(found.valid.to(self.device), STREAMS, before, whole=True),
            "test": streams(found.test.to(self.device), STREAMS, before, whole=True),
        }
        self.frequency = torch.bincount(found.train.long(), minlength=len(found.symbols)).double() / len(found.train)
        self.spec = Spec(
            "one_hot" if embedding is None else "tokens", len(found.symbols), len(found.symbols), "all",
            horizon=length, select=("bpc", "min"), embedding=embedding, carried=state == "carried",
        )  # fmt: skip

    def n_batches(self, split: str) -> int:
        """Segments of a split's streams."""
        return -(-(len(self.streams[split]) - 1) // self.length)

    def batches(self, split: str, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        """Segments of all streams of a split, from segment `start` on; the last may be shorter."""
        read = self.streams[split]
        for k in range(start, self.n_batches(split)):
            part = read[k * self.length : (k + 1) * self.length + 1].long()
            yield Batch(part[:-1].clamp(min=0).contiguous(), part[1:].contiguous())

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return F.cross_entropy(logits.flatten(0, 1), batch.target.flatten(), ignore_index=IGNORED)

    def metrics(self, logits: Tensor, batch: Batch) -> dict[str, tuple[Tensor, int]]:
        loss = F.cross_entropy(logits.flatten(0, 1), batch.target.flatten(), ignore_index=IGNORED, reduction="sum")
        n = int((batch.target != IGNORED).sum())
        return {"loss": (loss, n), "bpc": (loss / math.log(2.0), n)}

    def chance(self) -> float:
        return float(torch.special.entr(self.frequency).sum())


def streams(symbols: Tensor, n: int, before: int, whole: bool) -> Tensor:
    """A text as n streams side by side, (1 + rows, n); each begins with the symbol before its first.

    The first stream begins with `before`. whole: the last streams are filled up with IGNORED; else what is less than a
    row is left out.
    """
    rows = -(-len(symbols) // n) if whole else len(symbols) // n
    filling = symbols.new_full((max(0, rows * n - len(symbols)),), IGNORED)
    padded = torch.cat([symbols.new_tensor([before]), symbols, filling])
    return padded[: rows * n + 1].unfold(0, rows + 1, rows).T
