"""Losses of samplers that tests share."""

from __future__ import annotations

from dvrenyi_plugin.mechanisms import CircularMeanLoss, LogisticLoss, MeanLoss, QuantileLoss
from dvrenyi_plugin.mechanisms.exponential.losses import Loss

# With the number of columns of their records.
LOSSES: list[tuple[Loss, int]] = [
    (CircularMeanLoss(num_records=6), 1),
    (CircularMeanLoss(num_records=6, dimension=2), 2),
    (MeanLoss(num_records=6, low=-1.0, high=3.0), 1),
    (MeanLoss(num_records=6, dimension=3), 3),
    (QuantileLoss(num_records=6), 1),
    (QuantileLoss(num_records=6, low=-2.0, high=5.0, quantile=0.9), 1),
    (LogisticLoss(num_records=6), 3),
    (LogisticLoss(num_records=6, dimension=3, radius=1.0), 4),
]
