"""The fault that keeps an audit from being made at all; what an audit finds is in the audit instead."""

from pcgeval.core.errors import PcgevalError


class AuditError(PcgevalError):
    """There is nothing to audit, or dvc.lock or dvc.yaml cannot be understood."""
