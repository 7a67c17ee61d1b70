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

from .audits.assertions import assert_private as assert_private
from .audits.training.audit import audit_training as audit_training
from .audits.training.recorded import audit_scores as audit_scores
from .data.canary_search import suggest_canaries as suggest_canaries

__version__: str
