"""The registry of testers: every name builds its tester, and unknown names are refused in words."""

import numpy as np
import pytest

from dvrenyi_plugin import testers
from dvrenyi_plugin.interfaces import PrivacyProperty, RenyiDp
from dvrenyi_plugin.testers import TESTER_NAMES, kind_of_tester, make

CLAIM = PrivacyProperty(renyi_dp=RenyiDp(2.0, 0.5))
NEEDED = {"likelihood_ratio": {"log_ratio": lambda samples: samples[:, 0] - 0.5}}


@pytest.mark.parametrize("name", TESTER_NAMES)
def test_every_name_builds_its_tester_and_it_audits(name):
    tester = make(name, CLAIM, 3, **NEEDED.get(name, {}))
    assert type(tester).__name__ == kind_of_tester(name).class_name
    assert tester.privacy_property is CLAIM
    rng = np.random.default_rng(0)
    result = tester.audit(rng.normal(1.0, 1.0, 60), rng.normal(size=60), 0.05)
    assert (result.seed, result.claimed_limit) == (3, 0.5)


def test_every_exported_tester_has_a_name():
    classes = {name for name in testers.__all__ if name.endswith("Tester")}
    assert classes == {kind_of_tester(name).class_name for name in TESTER_NAMES}


def test_only_the_published_baseline_misses_its_level():
    missing = [name for name in TESTER_NAMES if not kind_of_tester(name).valid_at_stated_level]
    assert missing == ["gdp_baseline"]


def test_unknown_names_and_settings_are_refused():
    with pytest.raises(ValueError, match=r"tester must be one of sequential, dv.*, got 'hope'"):
        make("hope", CLAIM)
    with pytest.raises(TypeError, match="hope"):
        make("threshold", CLAIM, hope=1)
