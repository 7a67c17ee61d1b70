"""The one registry of this package's testers: each by its short name."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

from dvrenyi_plugin._internal.validation import check_choice


@dataclasses.dataclass(frozen=True)
class TesterKind:
    """A tester of this package.

    Attributes:
      name: as flags and tables write it.
      class_name: in `dvrenyi_plugin.testers`; its config's name has "Config" at the end.
      tests: what its lower bound is of, in words.
      valid_at_stated_level: False for a method whose stated failure probability is known not to
        hold.
    """

    name: str
    class_name: str
    tests: str
    valid_at_stated_level: bool = True


_KINDS = (
    TesterKind("sequential", "SequentialRenyiPropertyTester", "D_alpha, by an e-process"),
    TesterKind("dv", "DvRenyiPropertyTester", "D_alpha, by a neural Donsker-Varadhan critic"),
    TesterKind("trade_off", "TradeOffPropertyTester", "the claim's whole trade-off curve"),
    TesterKind("threshold", "ThresholdAttackTester", "the claim's own quantity, by a 0/1 attack"),
    TesterKind(
        "gdp_baseline",
        "GdpBaselineTester",
        "the claim's own quantity if the trade-off were Gaussian; the threshold is not held out",
        valid_at_stated_level=False,
    ),
    TesterKind("likelihood_ratio", "LikelihoodRatioTester", "D_alpha, by the known log ratio"),
)
_BY_NAME = {kind.name: kind for kind in _KINDS}
TESTER_NAMES = tuple(_BY_NAME)


def kind_of_tester(name: str) -> TesterKind:
    """Returns what is known of a tester.

    Raises:
      ValueError: unknown; the message lists what is known.
    """
    return _BY_NAME[check_choice("tester", name, TESTER_NAMES)]


def quickest_tester(claim: Any) -> str:
    """Returns the name of the tester that refutes claims of this kind with the fewest samples, and
    that can take them while they arrive: "trade_off", or "sequential" for Rényi DP and zCDP, of
    which events see only a part.

    Args:
      claim: a privacy property, of this package or of DP-Auditorium.
    """
    # Claims need scipy, which takes a second to load: not for the names of testers.
    from dvrenyi_plugin.interfaces import RenyiDp, ZeroConcentratedDp, read_claim

    is_divergence = isinstance(read_claim(claim), RenyiDp | ZeroConcentratedDp)
    return "sequential" if is_divergence else "trade_off"


def make(name: str, claim: Any, seed: int = 0, **settings: Any) -> Any:
    """Returns a new tester of a claim. Only the libraries that this tester uses are imported.

    Args:
      name: one of `TESTER_NAMES`.
      claim: the privacy property that is tested, of this package or of DP-Auditorium.
      seed: of the tester's randomness, >= 0.
      **settings: further fields of the tester's config.

    Raises:
      ValueError: an unknown name, or settings that the tester's config refuses.
    """
    kind = kind_of_tester(name)
    testers = importlib.import_module("dvrenyi_plugin.testers")
    config = getattr(testers, f"{kind.class_name}Config")
    return getattr(testers, kind.class_name)(config(privacy_property=claim, seed=seed, **settings))
