"""What an audit of a sampler adds to its report: the sampler's certificate and its utility."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dvrenyi_plugin.flows.certificate import Certificate
from dvrenyi_plugin.reports.model import Section
from dvrenyi_plugin.reports.text import Table, number

_APPROXIMATE_DP_FRACTIONS = (0.25, 0.5, 0.75)


@dataclasses.dataclass(frozen=True)
class Utility:
    """Excess loss E[L(release)] - min L on the first dataset, the loss read at cell midpoints.

    Attributes:
      expected_excess_loss: exact, of the program as run.
      target_excess_loss: exact, of the exponential mechanism.
      certified_excess_loss: the certificate's upper bound.
    """

    expected_excess_loss: float
    target_excess_loss: float
    certified_excess_loss: float


def certificate_section(certificate: Certificate, alphas: Sequence[float]) -> Section:
    """Returns what a sampler claims for all neighbouring datasets, in several notions of privacy.

    Args:
      certificate: of the sampler.
      alphas: orders at which its Rényi DP is stated.
    """
    pure, zcdp = certificate.pure_dp(), certificate.zcdp()
    epsilons = [fraction * pure.value for fraction in _APPROXIMATE_DP_FRACTIONS]
    statements = [("pure DP, epsilon", pure), ("zCDP, rho", zcdp)]
    statements += [
        (f"Rényi DP at order {alpha:g}, epsilon", certificate.renyi_dp(alpha)) for alpha in alphas
    ]
    statements += [
        (f"approximate DP at epsilon {epsilon:.4g}, delta", certificate.approximate_dp(epsilon))
        for epsilon in epsilons
    ]
    return Section(
        title="Certificate",
        content={
            "certificate": [
                {"statement": name, "value": entry.value, "source": entry.source}
                for name, entry in statements
            ]
        },
        table=Table(
            ("statement", "value", "result"),
            [(name, number(entry.value), entry.source) for name, entry in statements],
        ),
        summary=(("certificate", f"{number(pure.value)}-DP ({pure.source})"),),
    )


def utility_section(utility: Utility) -> Section:
    """Returns how far a sampler's releases lie from the best."""
    expected, target = number(utility.expected_excess_loss), number(utility.target_excess_loss)
    return Section(
        title="Utility",
        content={"utility": utility},
        table=Table(
            ("excess loss on dataset1", "value"),
            [
                ("of the program as run", expected),
                ("of the exponential mechanism", target),
                ("certified upper bound", number(utility.certified_excess_loss)),
            ],
        ),
        summary=(("excess loss", f"{expected}, of the exponential mechanism {target}"),),
    )
