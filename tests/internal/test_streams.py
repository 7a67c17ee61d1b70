"""A tester and a mechanism with one seed share no random number."""

import numpy as np
import pytest

from dvrenyi_plugin._internal.streams import seed_of, streams_of
from dvrenyi_plugin.interfaces import PrivacyProperty, RenyiDp
from dvrenyi_plugin.mechanisms import GaussianMechanism, GaussianMechanismConfig
from dvrenyi_plugin.testers import (
    DvRenyiPropertyTester,
    DvRenyiPropertyTesterConfig,
    GdpBaselineTester,
    GdpBaselineTesterConfig,
    SequentialRenyiPropertyTester,
    SequentialRenyiPropertyTesterConfig,
    ThresholdAttackTester,
    ThresholdAttackTesterConfig,
)

_SEED = 11
_CLAIM = PrivacyProperty(renyi_dp=RenyiDp(2.0, 1.0))
_TESTERS = {
    "sequential": lambda: SequentialRenyiPropertyTester(
        SequentialRenyiPropertyTesterConfig(_CLAIM, seed=_SEED)
    ),
    "sequential, network": lambda: SequentialRenyiPropertyTester(
        SequentialRenyiPropertyTesterConfig(_CLAIM, log_ratio="network", seed=_SEED)
    ),
    "dv": lambda: DvRenyiPropertyTester(DvRenyiPropertyTesterConfig(_CLAIM, seed=_SEED)),
    "threshold": lambda: ThresholdAttackTester(ThresholdAttackTesterConfig(_CLAIM, seed=_SEED)),
    "gdp_baseline": lambda: GdpBaselineTester(
        GdpBaselineTesterConfig(_CLAIM, held_out_threshold=True, seed=_SEED)
    ),
}


class _Recorder:
    """Stands for `np.random.default_rng` and keeps the first draw of every generator made."""

    def __init__(self) -> None:
        self._make = np.random.default_rng
        self.first_draws: set[int] = set()

    def __call__(self, seed=None):
        self.first_draws.add(int(self._make(seed).integers(2**63)))
        return self._make(seed)


@pytest.mark.parametrize("name", _TESTERS)
def test_deliver4_no_stream_of_a_tester_is_one_of_a_mechanism_with_its_seed(name, monkeypatch):
    samples = np.random.default_rng(0).normal(size=(2, 80))
    mechanism = GaussianMechanism(
        GaussianMechanismConfig(noise_multiplier=1.0, clip_norm=1.0, seed=_SEED)
    )
    of_mechanisms = _Recorder()
    monkeypatch.setattr(np.random, "default_rng", of_mechanisms)
    for _ in range(4):
        mechanism(np.zeros((3, 1)), 5)
    # What a user's mechanism and this package's others do with their seed.
    for root in ([], [0], [1], [0, 0], [0, 1], [1, 0], [1, 1]):
        np.random.default_rng(np.random.SeedSequence(_SEED, spawn_key=tuple(root)))
    np.random.default_rng(_SEED)
    of_the_tester = _Recorder()
    of_the_tester._make = of_mechanisms._make
    monkeypatch.setattr(np.random, "default_rng", of_the_tester)
    _TESTERS[name]().audit(*samples, 0.05)
    assert of_the_tester.first_draws
    assert not of_the_tester.first_draws & of_mechanisms.first_draws


def test_streams_of_differ_by_role_seed_and_number_and_are_the_same_again():
    seeds = [
        seed_of(stream)
        for role in ("tester", "critic")
        for seed in (0, 1)
        for stream in streams_of(role, seed, 3)
    ]
    assert len(set(seeds)) == len(seeds)
    assert seeds[:3] == [seed_of(stream) for stream in streams_of("tester", 0, 3)]
