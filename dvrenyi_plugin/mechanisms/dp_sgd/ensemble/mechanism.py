"""DP-SGD for auditing: a stack of models trained at once, which differ only in their randomness."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dvrenyi_plugin._internal.limits import Int
from dvrenyi_plugin._internal.torch_threads import single_thread
from dvrenyi_plugin.mechanisms.dp_sgd.base import DpSgdMechanism
from dvrenyi_plugin.mechanisms.dp_sgd.config import DpSgdConfig, ModelStreams
from dvrenyi_plugin.mechanisms.dp_sgd.ensemble.layer import LayerInput
from dvrenyi_plugin.mechanisms.dp_sgd.ensemble.network import EnsembleNetwork, round_up
from dvrenyi_plugin.mechanisms.dp_sgd.networks import load_weights, model_factory
from dvrenyi_plugin.mechanisms.random_streams import torch_generator


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class EnsembleDpSgdMechanismConfig(DpSgdConfig):
    """Settings of `DpSgdConfig`, and:

    Attributes:
      device: where models are trained, as torch names it ("cpu", "cuda", "cuda:1", "mps").
      memory_budget_bytes: roughly what activations and gradients may take at a time, >= 2^20. It
        decides how many models and how many records are worked on together, never what is computed.
        Records are split the same way for every group of models; a different budget may split them
        differently, which moves results by float32 rounding. None: 64 MiB on the CPU, where staying
        near the caches is fastest, and 4 GiB elsewhere.
    """

    device: str = "cpu"
    memory_budget_bytes: Annotated[int, Int(at_least=2**20)] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            torch.device(self.device)
        except (RuntimeError, TypeError, ValueError):  # the last for an integer beyond 64 bits
            raise ValueError(f"device must be a torch device, got {self.device!r}") from None


class EnsembleDpSgdMechanism(DpSgdMechanism):
    """Trains many models at once in float32 and observes the canary under each.

    The same mechanism as `OpacusDpSgdMechanism`, with the same claim, and clipped sums equal to
    Opacus's up to float32 rounding; its noise comes from other streams. On the CPU it runs on one
    thread, because the rounding of matrix products depends on the number of threads: spread models
    over processes instead.
    """

    config: EnsembleDpSgdMechanismConfig

    def __init__(self, config: EnsembleDpSgdMechanismConfig) -> None:
        super().__init__(config)
        model = model_factory(config.model, config.input_shape, config.num_classes)()
        load_weights(model, config.initial_weights)
        self._network = EnsembleNetwork(model, config.input_shape)
        try:
            model.to(config.device)
            torch.Generator(config.device)
        except (RuntimeError, AssertionError) as error:
            raise ValueError(f"device {config.device!r} cannot be used here: {error}") from None

    def _train(
        self,
        features: NDArray[np.float32],
        labels: NDArray[np.int64],
        streams: Sequence[ModelStreams],
    ) -> NDArray[Any]:
        with _exact_kernels(self.config.device):
            _keep_freed_memory()
            run = _Run(self.config, self._network, features, labels)
            results = [
                run.train(streams[start : start + run.models_at_once])
                for start in range(0, len(streams), run.models_at_once)
            ]
        return np.concatenate(results)


class _Run:
    """One dataset, prepared once, and the training of groups of models on it."""

    def __init__(
        self,
        config: EnsembleDpSgdMechanismConfig,
        network: EnsembleNetwork,
        features: NDArray[np.float32],
        labels: NDArray[np.int64],
    ) -> None:
        self._config = config
        self._network = network
        self._device = torch.device(config.device)
        self._num_records = len(labels)
        self._initial_row = network.initial_row(config.initial_weights).to(self._device)
        quantum = network.example_quantum
        canary = torch.from_numpy(np.repeat(config.canary[0][np.newaxis], quantum, axis=0))
        self._canary = LayerInput(network.prepare(canary.to(self._device)), shared=True)
        inputs = network.prepare(torch.from_numpy(features).to(self._device))
        one_hot = torch.zeros((self._num_records, config.num_classes))
        one_hot.scatter_(1, torch.from_numpy(labels).unsqueeze(1), 1.0)
        one_hot = one_hot.to(self._device)
        self._plan()
        if config.sample_rate == 1.0:
            self._chunks = [
                _Chunk.of_records(chunk_inputs, chunk_labels, quantum)
                for chunk_inputs, chunk_labels in zip(
                    torch.split(inputs, self._records_at_once),
                    torch.split(one_hot, self._records_at_once),
                    strict=True,
                )
                if len(chunk_labels)
            ]
        else:
            self._inputs, self._one_hot = inputs, one_hot

    def _plan(self) -> None:
        """Chooses how many records and models to work on at once, records first.

        The split of the records decides the order of a sum, so it must not depend on how many
        models are asked for; the number of models decides nothing but speed.
        """
        config, network = self._config, self._network
        budget = config.memory_budget_bytes
        if budget is None:
            budget = 2**26 if self._device.type == "cpu" else 2**32
        bytes_per_example = 4 * max(1, network.floats_per_example)
        expected = config.sample_rate * self._num_records
        if config.sample_rate < 1.0:
            # Three standard deviations above the mean: larger batches take a second round.
            expected += 3.0 * np.sqrt(expected * (1.0 - config.sample_rate))
        quantum = network.example_quantum
        wanted = round_up(int(np.ceil(min(max(1.0, expected), max(1, self._num_records)))), quantum)
        most = max(quantum, budget // bytes_per_example // quantum * quantum)
        self._records_at_once = min(wanted, most)
        if wanted > most:
            rounds = -(-wanted // most)
            self._records_at_once = round_up(-(-wanted // rounds), quantum)
        # What layers derive from shared records (unfolded patches) is kept between steps while it
        # is small.
        derived_bytes = 4 * network.shared_floats_per_example * self._num_records
        self._keep_derived = derived_bytes <= max(budget, 2**28)
        bytes_per_model = self._records_at_once * bytes_per_example + 8 * network.row_size
        self.models_at_once = int(max(1, min(1024, budget // bytes_per_model)))

    def train(self, streams: Sequence[ModelStreams]) -> NDArray[Any]:
        """Returns newly trained models' results: the canary's logits, or the weights, a
        row each.
        """
        if len(streams) == 1 < self.models_at_once:
            # The product of a single model's matrices may run in another kernel, which rounds
            # differently than the one for stacks: where there are stacks, a model alone is trained
            # beside a copy of itself.
            return self.train([*streams, *streams])[:1]
        config, network = self._config, self._network
        rows = self._initial_row.repeat(len(streams), 1)
        sums = torch.empty_like(rows)
        noise = [torch_generator(stream.noise, self._device) for stream in streams]
        sampling = [stream.sampling_generator() for stream in streams]
        for step in range(config.num_steps):
            std = config.noise_std(step)
            for model, generator in enumerate(noise):
                # One call fills a model's whole row, all its parameters, and the sum is added to
                # it.
                if std > 0.0:
                    sums[model].normal_(0.0, std, generator=generator)
                else:
                    sums[model].zero_()
            sizes = self._add_gradients(sums, rows, sampling)
            for model, size in enumerate(sizes):
                rows[model].add_(
                    sums[model], alpha=-config.learning_rate / config.denominator(size)
                )
        if config.observes_weights:
            return network.weights(rows, list(config.initial_weights)).cpu().numpy()
        logits: NDArray[Any] = network.logits(rows, self._canary)[:, 0].cpu().numpy()
        return logits

    def _add_gradients(
        self, sums: Tensor, rows: Tensor, sampling: Sequence[np.random.Generator]
    ) -> list[int]:
        """Adds the clipped sums of one step's batches to `sums` and returns the batch sizes."""
        clip_norm = self._config.effective_clip_norm
        if not self._num_records:
            return [0] * len(rows)
        if self._config.sample_rate == 1.0:
            for chunk in self._chunks:
                chunk.add_clipped_sums(self._network, sums, rows, clip_norm)
                if not self._keep_derived:
                    chunk.inputs.cache.clear()
            return [self._num_records] * len(rows)
        batches = [
            np.flatnonzero(generator.random(self._num_records) < self._config.sample_rate)
            for generator in sampling
        ]
        first = [batch[: self._records_at_once] for batch in batches]
        self._poisson_chunk(first).add_clipped_sums(self._network, sums, rows, clip_norm)
        for model, batch in enumerate(batches):
            for start in range(self._records_at_once, len(batch), self._records_at_once):
                part = slice(model, model + 1)
                self._poisson_chunk(
                    [batch[start : start + self._records_at_once]]
                ).add_clipped_sums(self._network, sums[part], rows[part], clip_norm)
        return [len(batch) for batch in batches]

    def _poisson_chunk(self, batches: Sequence[NDArray[np.int64]]) -> _Chunk:
        """Returns every model's own records, padded with masked copies of record 0 to one
        length.
        """
        shape = (len(batches), self._records_at_once)
        positions, mask = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.float32)
        for model, batch in enumerate(batches):
            positions[model, : len(batch)] = batch
            mask[model, : len(batch)] = 1.0
        index = torch.from_numpy(positions).to(self._device)
        return _Chunk(
            LayerInput(self._inputs[index], shared=False),
            self._one_hot[index],
            torch.from_numpy(mask).to(self._device),
        )


@dataclasses.dataclass(frozen=True)
class _Chunk:
    """Records worked on together.

    Attributes:
      inputs: what enters the first layer.
      one_hot: labels, shape (n, classes) or (models, n, classes).
      mask: 1 for records, 0 for padding; None without padding.
    """

    inputs: LayerInput
    one_hot: Tensor
    mask: Tensor | None

    @staticmethod
    def of_records(inputs: Tensor, one_hot: Tensor, quantum: int) -> _Chunk:
        """Returns shared records, padded to a multiple of `quantum` with masked copies of the
        first.
        """
        missing = round_up(len(inputs), quantum) - len(inputs)
        mask = None
        if missing:
            mask = torch.cat([one_hot.new_ones(len(inputs)), one_hot.new_zeros(missing)])
            inputs = torch.cat([inputs, inputs[:1].expand(missing, *inputs.shape[1:])])
            one_hot = torch.cat([one_hot, one_hot[:1].expand(missing, -1)])
        return _Chunk(LayerInput(inputs.contiguous(), shared=True), one_hot.contiguous(), mask)

    def add_clipped_sums(
        self, network: EnsembleNetwork, sums: Tensor, rows: Tensor, clip_norm: float
    ) -> None:
        """Adds these records' clipped sums to `sums`."""
        network.add_clipped_sums(sums, rows, self.inputs, self.one_hot, self.mask, clip_norm)


def _keep_freed_memory() -> None:
    """Makes glibc keep what is freed between steps, up to 62 MiB.

    At first it returns every freed block of over 128 KiB to the kernel, and a step then spends a
    third of its time on page faults; freeing one large block, which is never touched, raises that
    threshold (see M_MMAP_THRESHOLD in mallopt(3)). Other allocators take no notice.
    """
    np.empty(31 * 2**20, dtype=np.uint8)


@contextlib.contextmanager
def _exact_kernels(device: str) -> Iterator[None]:
    """Inside, CPU kernels run on one thread and CUDA convolutions in full float32; then all is
    restored.

    The 10-bit mantissa of TF32 would put a relative error near 0.001 on the norms that clipping
    relies on.
    """
    cudnn = torch.backends.cudnn
    threads = single_thread() if torch.device(device).type == "cpu" else contextlib.nullcontext()
    with threads, cudnn.flags(enabled=cudnn.enabled, deterministic=True, allow_tf32=False):
        yield
