"""Language modelling on your own text, by characters or words."""

import math

from torch import Tensor

from timescales.files import digest_of
from timescales.tasks.characters import STREAMS, NextSymbol
from timescales.tasks.data import own
from timescales.tasks.data.text import EOS, SPLITS
from timescales.tasks.task import Batch, check_at_least, check_choice


class OwnText(NextSymbol):
    """Your own text file: at every step the model predicts the next character or word.

        input   \\n  T  h  e  _  r  i  v  e  r       characters; or words: <eos>  The    river  rose
        target   T  h  e  _  r  i  v  e  r  _                              The    river  rose   in
                                                     every position is scored

    The first part of the file is for training, the next for validation, the last for the test. The vocabulary is that
    of the training part: a symbol that occurs there fewer than `min_count` times is read, predicted and scored as
    `<unk>`. Words are separated by white space; `<eos>` ends each line.

    Loss: cross-entropy per symbol; at chance, the entropy of the symbols' frequencies in the training part.
    Metric: for characters bpc, bits per character, the loss divided by ln 2; for words the perplexity, exp of the loss.

    Streams and state are those of `Characters`. A short validation or test part has fewer streams, so that each has at
    least 10 segments.

    data: the file, UTF-8; a relative path may begin in the current folder or in data_root.
    unit: "characters" or "words".
    valid_fraction, test_fraction: the shares of the file, in symbols.
    length: steps of a segment. state: "carried" or "reset", as in `Characters`.
    embedding: size of a learned embedding, None for one-hot input.
    Raises ValueError for a file that cannot be used, with the line, and for parts that are too short.
    """

    def __init__(
        self,
        *,
        data: str | None = None,
        unit: str = "characters",
        valid_fraction: float = 0.1,
        test_fraction: float = 0.1,
        min_count: int = 2,
        length: int = 100,
        state: str = "carried",
        embedding: int | None = 64,
        batch_size: int = 16,
        seed: int = 0,
        device: str = "cpu",
        data_root: str | None = None,
    ) -> None:
        check_choice("unit", unit, ("characters", "words"))
        check_at_least(1, min_count=min_count, length=length, batch_size=batch_size)
        path = own.locate(data, data_root, "FILE.txt")
        own.check_fractions(valid_fraction, test_fraction)
        symbols = own.tokens(own.read_text(path), unit)
        cuts = own.cuts(len(symbols), valid_fraction, test_fraction)
        if cuts[0] < 2 * batch_size:
            raise ValueError(
                f"{path} has {cuts[0]:,} {unit} for training, too few for batch_size {batch_size}: "
                f"give a longer text, or a batch_size of at most {cuts[0] // 2}"
            )
        read = own.numbered(symbols, cuts, min_count)
        line_end = "\n" if unit == "characters" else EOS
        super().__init__(
            read,
            before=read.symbols.index(line_end) if line_end in read.symbols else 0,
            length=length,
            state=state,
            embedding=embedding,
            # At least ten segments in a stream, so that few symbols are predicted from nothing.
            in_parallel={
                split: max(1, min(STREAMS, len(getattr(read, split)) // (10 * length))) for split in ("valid", "test")
            },
            batch_size=batch_size,
            seed=seed,
            device=device,
            unit=unit,
            select="bpc" if unit == "characters" else "perplexity",
        )
        self.unit, self.data = unit, {str(path): digest_of(path)}
        self.unknown = {split: float((getattr(read, split) == 0).double().mean()) for split in SPLITS}

    def notes(self) -> list[str]:
        """Return what was read from the file: sizes, vocabulary, and the share of unknown symbols in each part."""
        (path,) = self.data
        parts = ", ".join(f"{self.sizes[split]:,} for {split}" for split in SPLITS)
        unknown = ", ".join(f"{100 * self.unknown[split]:.3g} % of {split}" for split in SPLITS)
        return [
            f"{path}: {self.unit}: {parts}",
            f"  vocabulary of the training part: {len(self.symbols):,}; {own.UNKNOWN}: {unknown}",
        ]

    def words(self, x: Tensor) -> list[str] | None:
        """Return the words of tokens (S,); None for characters."""
        return None if self.unit == "characters" else [self.symbols[k] for k in x.tolist()]

    def metrics(self, logits: Tensor, batch: Batch) -> dict[str, tuple[Tensor, int]]:
        found = super().metrics(logits, batch)
        return found if self.unit == "characters" else {"loss": found["loss"]}

    def derived(self, metrics: dict[str, float]) -> dict[str, float]:
        if self.unit == "characters":
            return metrics
        return metrics | {"perplexity": math.exp(min(metrics["loss"], 700.0))}
