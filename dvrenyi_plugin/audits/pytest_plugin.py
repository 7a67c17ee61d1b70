"""The pytest fixture `privacy_suite`: privacy assertions that share one failure probability.

Every test that asks for the fixture gets the same part of the failure probability of the whole run,
whichever worker runs it, and its k-th assertion 6 / (pi k)^2 of that: however many there are, all
of them together spend no more than the test's part (the sum of 1 / k^2 is pi^2 / 6).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dvrenyi_plugin.reports.model import AuditReport

_OPTION = "privacy_failure_probability"
_DEFAULT = 0.01
_FIXTURE = "privacy_suite"
_SPENT = "privacy_suite_spent"


def pytest_addoption(parser: Any) -> None:
    """Adds the setting of the whole run, for pytest.ini and for the command line."""
    meaning = "probability that an honest mechanism fails any privacy assertion of the run"
    parser.addini(_OPTION, meaning, default=str(_DEFAULT))
    parser.addoption(f"--{_OPTION}", type=float, default=None, help=meaning)


def pytest_collection_finish(session: Any) -> None:
    """Divides the failure probability over the tests that will run and that ask for the fixture."""
    users = [item for item in session.items if _FIXTURE in getattr(item, "fixturenames", ())]
    session.config.stash[_PARTS] = whole_of(session.config) / max(1, len(users))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Says how the failure probability was divided."""
    spent = [
        value
        for reports in terminalreporter.stats.values()
        for report in reports
        # The fixture notes what was spent when it ends.
        if getattr(report, "when", "") == "teardown"
        for name, value in getattr(report, "user_properties", ())
        if name == _SPENT
    ]
    if spent:
        count = sum(number for number, _ in spent)
        terminalreporter.write_line(
            f"privacy suite: {count} assertions in {len(spent)} tests spent"
            f" {sum(part for _, part in spent):.4g} of the failure probability"
            f" {whole_of(terminalreporter.config):g}"
        )


def whole_of(config: Any) -> float:
    """Returns the failure probability of the whole run.

    Raises:
      pytest.UsageError: it is no number in (0, 1).
    """
    given = config.getoption(f"--{_OPTION}")
    try:
        whole = float(config.getini(_OPTION) if given is None else given)
    except ValueError:
        whole = math.nan
    if not 0.0 < whole < 1.0:
        raise pytest.UsageError(f"{_OPTION} must be a number in (0, 1), got {whole!r}")
    return whole


_PARTS = pytest.StashKey[float]()
_COUNTS = pytest.StashKey[dict[str, int]]()


class PrivacySuite:
    """What a test gets from the fixture.

    Args:
      part: of the failure probability of the run, for this test.
      num_before: assertions that this test made when it was run before.
    """

    def __init__(self, part: float, num_before: int = 0) -> None:
        self._part = part
        self.num_assertions = num_before
        self.spent = 0.0

    def assert_private(
        self, mechanism: Any, dataset1: Any, dataset2: Any, claim: Any, **settings: Any
    ) -> AuditReport:
        """Raises AssertionError when the claim is refuted at this assertion's share; see
        `dvrenyi_plugin.assert_private`, whose other settings are `budget` and `seed`.
        """
        from dvrenyi_plugin.audits.assertions import assert_private

        if "failure_probability" in settings:
            raise ValueError("failure_probability must be left to the suite, which divides it")
        self.num_assertions += 1
        share = self._part * 6.0 / (math.pi * self.num_assertions) ** 2
        self.spent += share
        return assert_private(
            mechanism, dataset1, dataset2, claim, failure_probability=share, **settings
        )


@pytest.fixture
def privacy_suite(request: Any) -> Any:
    """Privacy assertions that share the failure probability of the run."""
    config = request.config
    counts = config.stash.setdefault(_COUNTS, {})
    before = counts.get(request.node.nodeid, 0)
    suite = PrivacySuite(config.stash[_PARTS], before)
    yield suite
    counts[request.node.nodeid] = suite.num_assertions
    request.node.user_properties.append((_SPENT, (suite.num_assertions - before, suite.spent)))
