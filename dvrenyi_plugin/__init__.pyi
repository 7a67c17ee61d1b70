from . import (
    audits as audits,
    bounds as bounds,
    comparison as comparison,
    critics as critics,
    data as data,
    execution as execution,
    flows as flows,
    generators as generators,
    interfaces as interfaces,
    mechanisms as mechanisms,
    privacy as privacy,
    testers as testers,
)

__version__: str
