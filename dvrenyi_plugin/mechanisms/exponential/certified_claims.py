"""From a certificate to the list of claims that an audit can test."""

from __future__ import annotations

from typing import Any

from dvrenyi_plugin._internal.validation import check_order
from dvrenyi_plugin.flows.certificate import Certificate
from dvrenyi_plugin.interfaces import (
    BoundedRangeDp,
    PrivacyProperty,
    PureDp,
    RenyiDp,
    ZeroConcentratedDp,
    as_privacy_property,
)


def check_alphas(alphas: Any) -> None:
    """Refuses anything but a tuple of at least one Rényi order.

    Raises:
      ValueError: not a tuple, empty, or an order not above 1.
    """
    if not isinstance(alphas, tuple) or not alphas:
        raise ValueError(f"alphas must be a tuple of orders, got {alphas!r}")
    for alpha in alphas:
        check_order(alpha, "alphas")


def claims_of(certificate: Certificate, alphas: tuple[float, ...]) -> list[PrivacyProperty]:
    """Returns pure DP, zCDP, bounded range and Rényi DP at every order of `alphas`."""
    return [
        as_privacy_property(PureDp(certificate.pure_dp().value)),
        as_privacy_property(ZeroConcentratedDp(certificate.zcdp().value)),
        as_privacy_property(BoundedRangeDp(certificate.width)),
        *(
            as_privacy_property(RenyiDp(alpha, certificate.renyi_dp(alpha).value))
            for alpha in alphas
        ),
    ]
