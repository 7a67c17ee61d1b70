"""Critics that users give must treat rows one by one: refused where they do not, left alone where
they do."""

import numpy as np
import pytest
import torch
from torch import nn

from dvrenyi_plugin._internal.row_by_row import RowByRow
from dvrenyi_plugin.bounds.renyi_eprocess import GrowthOptimalEProcess, most_promising_order
from dvrenyi_plugin.critics import DvRenyiEstimator, DvRenyiEstimatorConfig
from dvrenyi_plugin.critics.fitters import fit_log_ratio
from dvrenyi_plugin.critics.neural_classifier import NetworkLogRatio
from dvrenyi_plugin.interfaces import GaussianDp, as_privacy_property
from dvrenyi_plugin.testers.dv_renyi_tester import (
    DvRenyiPropertyTester,
    DvRenyiPropertyTesterConfig,
)

MESSAGE = "must treat rows one by one"
NONE = np.empty((0, 1))


class Module(nn.Module):
    """A function as a module, with one weight."""

    def __init__(self, function, weight: float = 1.0) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.tensor(weight))

    def forward(self, x):
        return self.function(x, self.weight)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2)
        self.first, self.last = nn.Linear(1, 4), nn.Linear(4, 1)

    def forward(self, x):
        rows = self.first(x)
        return self.last(rows + self.attention(rows, rows, rows)[0])


ACROSS_ROWS = {
    "mean": lambda: Module(lambda x, w: w * (20.0 * x.mean() + 0.0 * x)),
    "minus mean": lambda: Module(lambda x, w: w * (x - x.mean(dim=0))),
    "minus maximum": lambda: Module(lambda x, w: w * (x - x.max())),
    "rank": lambda: Module(lambda x, w: w * x.argsort(dim=0).argsort(dim=0).float() / len(x)),
    "softmax": lambda: Module(lambda x, w: w * torch.softmax(3.0 * x, dim=0) * len(x)),
    "sum so far": lambda: Module(lambda x, w: w * x.cumsum(dim=0)),
    "place": lambda: Module(lambda x, w: w * x + torch.arange(len(x))[:, None]),
    "number of rows": lambda: Module(lambda x, w: w * x + 0.01 * len(x)),
    "batch statistics": lambda: nn.Sequential(
        nn.Linear(1, 8), nn.BatchNorm1d(8, track_running_stats=False), nn.ReLU(), nn.Linear(8, 1)
    ),
    "attention": Attention,
    "noise": lambda: Module(lambda x, w: w * x + torch.randn_like(x)),
}


def learned_mean() -> nn.Module:
    """Row by row until it has been trained."""
    return Module(lambda x, w: (w - 1.0) * x.mean() * 20.0 + x)


def deep(features: int, width: int, depth: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Linear(features, width)]
    for _ in range(depth):
        layers += [nn.GELU(), nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 1))


HONEST = {
    "linear": lambda d: nn.Linear(d, 1),
    "batch normalisation and dropout": lambda d: nn.Sequential(
        nn.Linear(d, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 1)
    ),
    "wide and deep": lambda d: deep(d, 256, 4),
    "large weights": lambda d: nn.Sequential(Module(lambda x, w: 1e3 * x), deep(d, 64, 2)),
    "convolution": lambda d: nn.Sequential(
        Module(lambda x, w: x[:, None]), nn.Conv1d(1, 4, 1), nn.Flatten(), nn.Linear(4 * d, 1)
    ),
    "squeezed": lambda d: nn.Sequential(nn.Linear(d, 1), Module(lambda x, w: x.squeeze())),
    "in place": lambda d: nn.Sequential(Module(lambda x, w: x.mul_(0.5)), nn.Linear(d, 1)),
    "step": lambda d: Module(lambda x, w: w * (x[:, 0] > 0.1).float()),
}


def dv_tester(model: nn.Module) -> DvRenyiPropertyTester:
    config = DvRenyiPropertyTesterConfig(privacy_property=as_privacy_property(GaussianDp(1.0)))
    return DvRenyiPropertyTester(config, model)


def normals(count: int, columns: int = 1, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    first, second = rng.standard_normal((2, count, columns))
    return first + 0.5, second


@pytest.mark.parametrize("name", ACROSS_ROWS)
@pytest.mark.parametrize("count", [16, 200, 4000])
def test_e7_models_that_look_at_other_rows_are_refused(name: str, count: int) -> None:
    with pytest.raises(ValueError, match=f"base_model {MESSAGE}"):
        dv_tester(ACROSS_ROWS[name]()).audit(*normals(count), 0.05)


def test_e7_the_fitted_model_is_looked_at_too() -> None:
    model = learned_mean()
    values = RowByRow("untrained", lambda x: model(torch.from_numpy(x))[:, 0], NONE)(normals(50)[0])
    assert values.shape == (50,)
    estimator = DvRenyiEstimator(DvRenyiEstimatorConfig(alpha=2.0), model)
    with pytest.raises(ValueError, match=MESSAGE):
        estimator.estimate(*normals(200))


@pytest.mark.parametrize("name", HONEST)
@pytest.mark.parametrize(("count", "columns"), [(8, 1), (200, 10), (3000, 1)])
def test_e7_honest_models_are_left_alone(name: str, count: int, columns: int) -> None:
    torch.manual_seed(0)
    result = dv_tester(HONEST[name](columns)).audit(*normals(count, columns), 0.05)
    assert np.isfinite(result.lower_bound)


def test_e7_values_may_be_infinite_where_that_is_allowed() -> None:
    samples = normals(50)[0]
    values = RowByRow("f", lambda x: np.where(x[:, 0] > 0, np.inf, -np.inf), NONE, finite=False)
    assert np.isinf(values(samples)).all()
    with pytest.raises(ValueError, match="f must give finite numbers"):
        RowByRow("f", lambda x: x[:, 0] * np.nan, NONE)(samples)


def across_rows(samples_q, samples_p):
    log_ratio, name = fit_log_ratio(samples_q, samples_p)
    return (lambda samples: log_ratio(samples) + samples[:, 0].mean()), name


def ahead_of_new_rows(samples_q, samples_p):
    """Row by row on the past, and not on what comes: the largest of a call gets more."""
    seen = set(np.concatenate([samples_q, samples_p])[:, 0])

    def log_ratio(samples):
        new = np.array([value not in seen for value in samples[:, 0]])
        values = samples[:, 0].copy()
        values[new] -= samples[new, 0].mean() if new.any() else 0.0
        return values

    return log_ratio, "ahead"


def in_place(samples_q, samples_p):
    log_ratio, name = fit_log_ratio(samples_q, samples_p)

    def spoiling(samples):
        values = log_ratio(samples)
        samples[:] = 0.0
        return values

    samples_q[:] = samples_p[:] = 0.0
    return spoiling, name


@pytest.mark.parametrize("fit", [across_rows, ahead_of_new_rows])
@pytest.mark.parametrize("step", [25, 200])
def test_e7_a_fit_that_looks_ahead_is_refused(fit, step: int) -> None:
    process = GrowthOptimalEProcess(2.0, 0.05, fit=fit)
    first, second = normals(200)
    with pytest.raises(ValueError, match=f"the log ratio of fit {MESSAGE}"):
        for start in range(0, 200, step):
            process.update(first[start : start + step], second[start : start + step])


def test_e7_the_choice_of_an_order_refuses_it_too() -> None:
    with pytest.raises(ValueError, match=MESSAGE):
        most_promising_order([2.0, 3.0], [0.5, 0.6], *normals(50), fit=across_rows)


def test_e1_a_fit_may_change_its_arguments() -> None:
    bounds = []
    for fit in (fit_log_ratio, in_place, lambda q, p: fit_log_ratio(q, p)):
        process = GrowthOptimalEProcess(2.0, 0.05, fit=fit)
        first, second = normals(400)
        process.update(first + 1.0, second)
        bounds.append(process.lower_bound)
    assert bounds[0] == bounds[1] == bounds[2] > 0.5


@pytest.mark.parametrize("fit", [3, lambda q, p: 1.0, lambda q, p: (1.0, "name")])
def test_a_fit_that_is_none_is_refused(fit) -> None:
    with pytest.raises(ValueError, match="fit must"):
        GrowthOptimalEProcess(2.0, 0.05, fit=fit).update(*normals(100))


def test_fits_of_this_package_are_trusted() -> None:
    for fit in (fit_log_ratio, NetworkLogRatio().fit):
        assert GrowthOptimalEProcess(2.0, 0.05, fit=fit)._fit == fit
