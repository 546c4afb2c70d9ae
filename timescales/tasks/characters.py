"""Language modelling by characters: predict the next character of a text."""

import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from timescales.tasks.data import text
from timescales.tasks.data.text import Text
from timescales.tasks.task import IGNORED, Batch, Spec, StepTask, check_at_least, check_choice, entropy, loss_of_steps

STREAMS = 128  # number of streams of the validation and test texts, for every size of the training batch


class NextSymbol(StepTask):
    """Language modelling with one output for each symbol: at every step the model predicts the next one.

    A split is cut into streams that are read in parallel, segment by segment. Evaluation scores each symbol of a split
    exactly once. Training leaves out the symbols that do not fill a step of all streams.

    read: the text.
    before: the number of the symbol before each split, from which its first symbol is predicted.
    in_parallel: the number of streams of the validation and the test text.
    unit: what a symbol is, for messages. select: see `Spec`. The other arguments are those of `Characters`.
    """

    def __init__(
        self,
        read: Text,
        *,
        before: int,
        length: int,
        state: str,
        embedding: int | None,
        in_parallel: Mapping[str, int],
        batch_size: int,
        seed: int,
        device: str,
        unit: str = "characters",
        select: str = "bpc",
    ) -> None:
        check_choice("state", state, ("carried", "reset"))
        check_at_least(1, length=length, embedding=1 if embedding is None else embedding)
        super().__init__(batch_size=batch_size, seed=seed, device=device, **read.sizes)
        if self.sizes["train"] < batch_size:
            raise ValueError(f"batch_size {batch_size} is more than the {self.sizes['train']} {unit} for training")
        self.length, self.symbols, self.partial = length, read.symbols, read.partial
        self.streams = {"train": streams(read.train.to(self.device), batch_size, before, whole=False)}
        for split, n in in_parallel.items():
            self.streams[split] = streams(getattr(read, split).to(self.device), n, before, whole=True)
        self.counts = torch.bincount(read.train.long(), minlength=len(self.symbols))
        self.spec = Spec(
            "one_hot" if embedding is None else "tokens",
            input_size=len(self.symbols),
            output_size=len(self.symbols),
            readout="all",
            horizon=length,
            select=(select, "min"),
            embedding=embedding,
            carried=state == "carried",
        )

    def n_batches(self, split: str) -> int:
        """Return the number of segments of a split's streams."""
        return -(-(len(self.streams[split]) - 1) // self.length)

    def batches(self, split: str, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        """Yield segments of all streams of a split, from segment `start` on. The last one may be shorter."""
        stream = self.streams[split]
        for k in range(start, self.n_batches(split)):
            segment = stream[k * self.length : (k + 1) * self.length + 1].long()
            yield Batch(segment[:-1].clamp(min=0).contiguous(), segment[1:].contiguous())

    def metrics(self, logits: Tensor, batch: Batch) -> dict[str, tuple[Tensor, int]]:
        loss = loss_of_steps(logits, batch.target, "sum")
        n = int((batch.target != IGNORED).sum())
        return {"loss": (loss, n), "bpc": (loss / math.log(2.0), n)}

    def chance(self) -> float:
        return entropy(self.counts)


class Characters(NextSymbol):
    """Penn Treebank or text8 by characters: at every step the model predicts the next character.

    Source: Chien et al. 2021, section 4.3, table 2, which state corpora, batch (128), segments (150 or 500 steps) and
    epochs (50, PTB). Streams, carried state and clipping follow the benchmark they cite (Chandar et al. 2019, NRU).

        input   \\n  a  e  r  _  b  a  n  k  n  o  t  e       the text, one character late
        target   a  e  r  _  b  a  n  k  n  o  t  e  _       every position is scored

    Loss: cross-entropy per character; at chance, the entropy of the character frequencies of the training text.
    Metric: bpc, bits per character, the loss divided by ln 2.

    A split is cut into streams that are read in parallel, segment by segment. Evaluation scores each character of a
    split exactly once; the first one is predicted after a line's end (PTB) or a space (text8). Training leaves out
    the characters that do not fill a step of all streams.

    corpus: "ptb" or "text8".
    length: steps of a segment.
    state: "carried", a segment begins with the final state of the one before it (no gradient passes, and the first
        segment begins with zeros); "reset", every segment begins with zeros.
    embedding: size of a learned embedding, None for one-hot input. With 20, the models have the parameter counts that
        Chien et al. state for PTB: 2.15 million with 716 (LSTM) and 828 (pLSTM) units.
    allow_partial: accept an incomplete corpus.
    Raises what `timescales.tasks.data.text` raises.
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
        read = (text.ptb_characters if corpus == "ptb" else text.text8)(data_root, allow_partial)
        super().__init__(
            read,
            before=read.symbols.index("\n" if corpus == "ptb" else " "),
            length=length,
            state=state,
            embedding=embedding,
            in_parallel={"valid": STREAMS, "test": STREAMS},
            batch_size=batch_size,
            seed=seed,
            device=device,
        )


def streams(symbols: Tensor, n: int, before: int, whole: bool) -> Tensor:
    """Return a text as n parallel streams, (1 + rows, n). Row 0 holds the symbol before each stream.

    before: the symbol before the first stream.
    whole: keep the whole text and fill the last streams with IGNORED; else leave out what does not fill a row.
    """
    rows = -(-len(symbols) // n) if whole else len(symbols) // n
    filling = symbols.new_full((max(0, rows * n - len(symbols)),), IGNORED)
    padded = torch.cat([symbols.new_tensor([before]), symbols, filling])
    return padded[: rows * n + 1].unfold(0, rows + 1, rows).T
