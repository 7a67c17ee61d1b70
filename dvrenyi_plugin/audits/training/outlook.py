"""The planner's word on an audit that refuted nothing: how many models would it take?"""

from __future__ import annotations

from typing import Any

from dvrenyi_plugin.audits.planner import RefutationPlan, plan_curve_refutation, plan_refutation
from dvrenyi_plugin.audits.training.sections import Separation
from dvrenyi_plugin.bounds.eprocess import STREAM_WARM_UP
from dvrenyi_plugin.bounds.grid_pairs import gaussian_pair
from dvrenyi_plugin.bounds.trade_off_eprocess import TRADE_OFF_WARM_UP
from dvrenyi_plugin.interfaces import claim_level, read_claim
from dvrenyi_plugin.privacy.claim_families import family_of
from dvrenyi_plugin.reports.model import AuditReport
from dvrenyi_plugin.testers.base import BoundResult

_POWER = 0.9
# More models than anyone trains for an audit.
_MOST = 1_000_000
# Laws with a larger d-prime than this are refuted no sooner.
_FAR_APART = 30.0


def outlook(
    report: AuditReport, claim: Any, separation: Separation, direction: str = "both"
) -> tuple[str, ...]:
    """Returns a sentence on how many models would refute the claim if the observations were
    Gaussian with the d-prime that was seen; none for a refuted claim, without a d-prime, or where
    the report says already that so few refute nothing.

    Args:
      report: of the audit.
      claim: the property that was tested.
      separation: of the observations.
      direction: of the claim's curve, see `TradeOffPropertyTesterConfig`.
    """
    d_prime, error = separation.d_prime, separation.standard_error
    too_few = all(
        (entry.bound.fewest_samples or 0.0) > report.num_samples for entry in report.directions
    )
    if report.refuted or too_few or not d_prime > 0.0:
        return ()
    bound, sequential = report.directions[0].bound, report.sequential is not None

    def needed(value: float) -> int | None:
        if value <= 0.0:
            return None
        plan = _plan(bound, claim, min(value, _FAR_APART), direction, sequential)
        found = plan.pairs_for_power(_POWER) if plan.rate > 0.0 else None
        return None if found is None or found > _MOST else found

    count = needed(d_prime)
    if count is not None and count <= report.num_samples:
        return (
            f"If the observations were Gaussian with the d-prime seen, {d_prime:.3g},"
            f" {_words(count)} would have refuted the claim with probability {_POWER:g}: they are"
            " not, or this audit had bad luck.",
        )
    at_best = needed(d_prime + 2.0 * error)
    if count is None and at_best is None:
        return (
            f"What was seen, d-prime {d_prime:.3g} +- {error:.2g}, lies below this claim: more"
            " models of the kind would hardly refute it. Another canary (suggest_canaries ranks"
            " some), logits or weights in place of a loss, or initial weights that are the same in"
            " every model may show more.",
        )
    more = "" if count is None else f" ({count - report.num_samples:,} more)"
    return (
        f"To refute this claim with probability {_POWER:g} takes {_words(count)}{more} if the"
        f" observations are Gaussian with the d-prime seen, {d_prime:.3g};"
        f" {_words(at_best)} if d-prime is two standard errors larger, and"
        f" {_words(needed(d_prime - 2.0 * error))} if it is two smaller. This is a plan, and no"
        " statement about the training.",
    )


def _words(count: int | None) -> str:
    if count is None:
        return "more models than any audit has"
    return f"{count:,} models per dataset"


def _plan(
    bound: BoundResult, claim: Any, d_prime: float, direction: str, sequential: bool
) -> RefutationPlan:
    if bound.alpha is not None:
        return plan_refutation(
            gaussian_pair(d_prime, bound.alpha),
            bound.alpha,
            bound.claimed_limit,
            bound.failure_probability,
            warm_up=STREAM_WARM_UP if sequential else None,
        )
    tested = read_claim(claim)
    return plan_curve_refutation(
        gaussian_pair(d_prime),
        family_of(tested, direction),
        claim_level(tested),
        bound.failure_probability,
        warm_up=TRADE_OFF_WARM_UP if sequential else None,
    )
