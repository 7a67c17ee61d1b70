from .base import BoundResult as BoundResult
from .dv_renyi_tester import (
    DvRenyiPropertyTester as DvRenyiPropertyTester,
    DvRenyiPropertyTesterConfig as DvRenyiPropertyTesterConfig,
)
from .gdp_baseline_tester import (
    GdpBaselineTester as GdpBaselineTester,
    GdpBaselineTesterConfig as GdpBaselineTesterConfig,
)
from .likelihood_ratio_tester import (
    LikelihoodRatioTester as LikelihoodRatioTester,
    LikelihoodRatioTesterConfig as LikelihoodRatioTesterConfig,
)
from .registry import (
    TESTER_NAMES as TESTER_NAMES,
    TesterKind as TesterKind,
    make as make,
    kind_of_tester as kind_of_tester,
)
from .sequential_renyi_tester import (
    SequentialRenyiPropertyTester as SequentialRenyiPropertyTester,
    SequentialRenyiPropertyTesterConfig as SequentialRenyiPropertyTesterConfig,
)
from .threshold_attack_tester import (
    ThresholdAttackTester as ThresholdAttackTester,
    ThresholdAttackTesterConfig as ThresholdAttackTesterConfig,
)
from .trade_off_tester import (
    TradeOffPropertyTester as TradeOffPropertyTester,
    TradeOffPropertyTesterConfig as TradeOffPropertyTesterConfig,
)
