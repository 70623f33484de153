"""A trial for the ledger: the verdict and state size of a cascade, as one word."""

from __future__ import annotations

from campaigns.case import Case
from campaigns.trial import Record, first_line
from tvm_cascade.algebra.fold import Fold
from tvm_cascade.obligations.derive import derive

KIND = "ledger"
"""Of its records."""


def ledger_trial(case: Case) -> Record:
    """Derives the case's fold; the record's code is the entry. Never raises."""
    try:
        outcome = derive(case.cascade())
    except Exception as error:  # a defect is an entry like any other: the ledger tells since when there is one
        return Record(KIND, case.seed, code="error", detail=first_line(error))
    if isinstance(outcome, Fold):
        return Record(KIND, case.seed, code=f"{len(outcome.components)}.{len(outcome.references)}")
    return Record(KIND, case.seed, code=outcome.reason.code)
