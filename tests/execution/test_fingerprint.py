"""What decides a trained model: two experiments have one fingerprint only if they are the same."""

import dataclasses
import functools

import numpy as np
import pytest
from trainer_examples import PAIR, NormalTrainer, make_pair

from dvrenyi_plugin.execution.fingerprint import ExperimentFingerprint
from dvrenyi_plugin.mechanisms import (
    GaussianMechanism,
    GaussianMechanismConfig,
)


def adds(amount):
    def add(dataset, seed):
        return amount + seed

    return add


@dataclasses.dataclass(frozen=True)
class Holder:
    value: object

    def method(self, dataset, seed):
        return self.value


def digest(value, pair=PAIR):
    return ExperimentFingerprint.of(Holder(value), pair).digest


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (1, 2),
        (1, 1.0),
        (1, True),
        (0.0, -0.0),
        (0.1, np.nextafter(0.1, 1)),
        ("1", 1),
        (None, 0),
        ([1, 2], [2, 1]),
        (np.zeros(3), np.zeros(4)),
        (np.zeros(4), np.zeros((2, 2))),
        (np.zeros(3), -np.zeros(3)),
        (np.zeros(3), np.zeros(3, np.float32)),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (adds(1), adds(2)),
        (functools.partial(adds, 1), functools.partial(adds, 2)),
        (lambda dataset, seed: 1, lambda dataset, seed: 2),
        (Holder(1).method, Holder(2).method),
        (Holder, NormalTrainer),
        (np.sin, np.cos),
    ],
)
def test_settings_that_differ_have_different_fingerprints(first, second):
    assert digest(first) != digest(second)
    assert digest(first) == digest(first)


def test_settings_made_twice_have_one_fingerprint():
    for make in (lambda: np.arange(3.0), lambda: adds(1), lambda: {"a": [1, (2.5, "x")]}):
        assert digest(make()) == digest(make())


def test_every_bit_of_the_data_and_every_setting_of_a_mechanism_count():
    def of(**settings):
        return GaussianMechanism(GaussianMechanismConfig(**{"noise_multiplier": 2.0, **settings}))

    base = ExperimentFingerprint.of(of(), PAIR).digest
    assert ExperimentFingerprint.of(of(), PAIR).digest == base
    assert ExperimentFingerprint.of(of(seed=1), PAIR).digest != base
    changed = make_pair()
    changed[0][0][0, 0, 0, 0] = np.nextafter(np.float32(0), np.float32(1))
    assert ExperimentFingerprint.of(of(), changed).digest != base
    assert ExperimentFingerprint.of(of(), changed[::-1]).digest != base


def test_networks_count_by_layers_and_weights():
    torch = pytest.importorskip("torch")
    first, second = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    second.load_state_dict(first.state_dict())
    assert digest(first) == digest(second)
    with torch.no_grad():
        second.bias += 1.0
    assert digest(first) != digest(second)
    assert digest(torch.nn.Sequential(torch.nn.ReLU())) != digest(
        torch.nn.Sequential(torch.nn.GELU())
    )


def test_a_function_that_calls_itself_has_a_fingerprint():
    def countdown(n):
        return n and countdown(n - 1)

    assert digest(countdown) == digest(countdown)


def test_what_has_no_known_content_is_refused():
    scope = {"__name__": "__main__"}
    exec("def typed_in(dataset, seed): return seed", scope)
    with pytest.raises(ValueError, match="typed_in must be defined in a file"):
        digest(scope["typed_in"])
    with pytest.raises(ValueError, match=r"must be made of numbers.*, got builtins\.object"):
        digest(object())
    with pytest.raises(ValueError, match="mechanism must be a dataclass or have a `config`"):
        ExperimentFingerprint.of(object(), PAIR)
