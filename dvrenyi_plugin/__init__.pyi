from . import (
    audits as audits,
    bounds as bounds,
    conversions as conversions,
    critics as critics,
    divergences as divergences,
    flows as flows,
    interfaces as interfaces,
    mechanisms as mechanisms,
    testers as testers,
)

__version__: str
