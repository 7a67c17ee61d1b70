"""The names of models and of broken trainings, apart from what makes them, which is slow
to load.
"""

from __future__ import annotations

MODEL_NAMES = ("mlp", "logistic", "cnn", "cifar_cnn")
TRAINING_DEFECTS = ("none", "no_clipping", "noise_every_fourth_step", "mean_by_private_count")
