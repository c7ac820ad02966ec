"""Names of core.trials under which reports and checks still import it."""

from pcgeval.core.trials import FLAG_KINDS, Flag, FlagKind
from pcgeval.core.trials import TrialUsage as Conduct
from pcgeval.core.trials import read_usage as read_conduct

__all__ = ["FLAG_KINDS", "Conduct", "Flag", "FlagKind", "read_conduct"]
