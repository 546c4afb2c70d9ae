"""The word-level language model AWD-LSTM: dropout at every place, and tied weights."""

from torch import Tensor, nn
from torch.nn import functional as F

from timescales.models.sequence import Output, SequenceModel, State
from timescales.nn.rnn import RNN
from timescales.tasks.task import Batch, Spec


class LockedDropout(nn.Module):
    """Drop units of x (S, B, H) with one mask for all steps (Gal & Ghahramani 2016; Merity et al. 2018, sec. 4.2)."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Return x; in training with a mask of shape (1, B, H)."""
        return x * F.dropout(x.new_ones(1, *x.shape[1:]), self.p) if self.training and self.p else x

    def extra_repr(self) -> str:
        return f"p={self.p}"


class AWDModel(SequenceModel):
    """Embedding, RNN and readout with the dropouts of `spec.awd` (`timescales.tasks.AWD`).

    Source: Merity, Keskar & Socher 2018, section 4, and their code. Recurrent weights get a new dropout mask in every
    forward pass (`Cell.weight_drop`). A word dropped from the embedding is dropped everywhere in the batch. All other
    masks are `LockedDropout`.
    Init: embedding and readout uniform on +-0.1, the readout's bias 0; an adaptive softmax as torch does.
    recurrent="frozen": the recurrent weights get no gradient, so no optimizer moves or decays them.
    cutoffs: an adaptive softmax, for which `forward` computes only the probabilities of the targets.
    """

    def __init__(self, rnn: RNN, spec: Spec) -> None:
        assert spec.awd is not None
        super().__init__(rnn, spec)
        self.awd = spec.awd
        if self.awd.tied and rnn.hidden_size != spec.width:
            raise ValueError(
                f"tied weights need a last layer of {spec.width} units like the embedding, not {rnn.hidden_size}: give "
                f"model.hidden_size={spec.width} (or a list that ends so), model.num_layers=3, or task.tied=false"
            )
        if rnn.dropout:
            raise ValueError("the dropout between layers is task.dropout_hidden here: leave model.dropout at 0")
        nn.init.uniform_(self.vectors, -0.1, 0.1)
        if isinstance(self.readout, nn.Linear):
            nn.init.uniform_(self.readout.weight, -0.1, 0.1)
            nn.init.zeros_(self.readout.bias)
        if self.awd.tied:
            self.readout.weight = self.vectors
        rnn.between = LockedDropout(self.awd.hidden)
        self.drop_input, self.drop_output = LockedDropout(self.awd.input), LockedDropout(self.awd.output)
        for cell in rnn.layers:
            hh = None if cell.weight_hh is None else cell.weights().hh  # None: there are none, or they are computed
            if (hh is None or not hh.numel()) and (self.awd.weight or self.awd.recurrent != "trained"):
                raise ValueError(
                    f"{type(cell).__name__} has no recurrent weights to drop or freeze: give task.weight_drop=0 and "
                    "task.recurrent=trained"
                )
            cell.weight_drop = self.awd.weight
            if cell.weight_hh is not None:
                cell.weight_hh.requires_grad_(self.awd.recurrent == "trained")

    def make_readout(self, width: int, spec: Spec) -> nn.Module:
        """Return a linear layer, or an adaptive softmax. Raises ValueError for cutoffs that do not fit."""
        assert spec.awd is not None
        cutoffs, words = spec.awd.cutoffs, spec.output_size
        if cutoffs is None:
            return super().make_readout(width, spec)
        if not cutoffs or sorted({*cutoffs, 0, words}) != [0, *cutoffs, words]:
            raise ValueError(
                f"task.cutoffs must be numbers that rise, above 0 and below the {words} words, not {list(cutoffs)}"
            )
        if width < 4 ** len(cutoffs):
            raise ValueError(
                f"each cluster of the softmax reads a quarter of the units of the one before it: {width} are too few "
                f"for {len(cutoffs)}; give model.hidden_size={4 ** len(cutoffs)} or more, or fewer task.cutoffs"
            )
        return nn.AdaptiveLogSoftmaxWithLoss(width, words, cutoffs)

    def forward(self, batch: Batch, state: State = None) -> Output:
        """Return logits for a batch of words (S, B), from the given state or from zeros."""
        x = F.embedding(batch.x, self.vectors)
        if self.training and self.awd.embedding:
            x = x * F.dropout(x.new_ones(len(self.vectors), 1), self.awd.embedding)[batch.x]
        raw, after = self.rnn(self.drop_input(x), state, reset=batch.reset)
        dropped = self.drop_output(raw)
        if self.awd.cutoffs is None:
            return Output(self.readout(dropped), after, raw, dropped)
        log_p = self.readout(dropped.flatten(0, 1), batch.target.flatten()).output
        return Output(log_p.view_as(batch.target), after, raw, dropped)
