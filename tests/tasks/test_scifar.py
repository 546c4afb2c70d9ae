"""Sequential CIFAR-10."""

import synthetic
import torch

from timescales import LSTM
from timescales.models.sequence import SequenceModel
from timescales.tasks import SCIFAR
from timescales.tasks.data import cifar


def test_scifar_is_normalised_and_read_row_by_row(tmp_path):
    synthetic.write_cifar(tmp_path / "cifar-10-python.tar.gz", 40, 20)
    sizes = {"valid_size": 5, "allow_partial": True, "data_root": str(tmp_path)}
    task = SCIFAR(**sizes)
    assert [task.size(split) for split in ("train", "valid", "test")] == [35, 5, 20]
    raw = cifar.read(tmp_path / "cifar-10-python.tar.gz")
    batch = next(task.batches("test"))
    assert batch.x.shape == (1024, 20, 3)
    mean, sd = (0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261)
    for pixel in (0, 31, 32, 1023):
        for channel in range(3):
            expected = (raw.test[:, channel, pixel].double() / 255 - mean[channel]) / sd[channel]
            torch.testing.assert_close(batch.x[pixel, :, channel].double(), expected, rtol=0, atol=1e-6)
    assert batch.target.tolist() == [k % 10 for k in range(100_000, 100_020)]
    numbers = [int(n) for n in raw.train[35:, 0, 0]]
    valid = next(task.batches("valid"))
    assert ((valid.x[0, :, 0] * sd[0] + mean[0]) * 255).round().int().tolist() == numbers  # the last ones
    assert task.partial == ["CIFAR-10 subset: 40 of 50,000 training images, 20 of 10,000 test images"]


def test_scifar_parameters(tmp_path):
    synthetic.write_cifar(tmp_path / "cifar-10-python.tar.gz", 20, 5)
    task = SCIFAR(valid_size=5, allow_partial=True, data_root=str(tmp_path))
    for head, readout in ((256, 512 * 256 + 256 + 256 * 10 + 10), (None, 512 * 10 + 10)):
        model = SequenceModel(LSTM(task.spec.width, 512), task.spec, head)
        assert sum(p.numel() for p in model.rnn.parameters()) == 1_058_816  # Gu et al.: H = 512, I = 3
        assert sum(p.numel() for p in [*model.head.parameters(), *model.readout.parameters()]) == readout
