"""The base of every error that a user can fix.

Modules define subclasses beside the code that raises them. A message says what was wrong, which value, where (team,
letter and trial, or file and line) and ends with what to do. Commands print it without a traceback.

PcgevalError
  AuditError
  BundleError
  CallError
    ContextError
  ClassifierError
  ClusterError
  CommitmentError
  CompareError
  DiversityError
  EnvironmentsError
  EvaluationError
  FaultsError
    HumanGradesError
    JudgeEvalError
    PaperError
    RubricError
  FileError
    UntrustedFileError
  FilingError
  FolderBusyError
  GradeError
  GradingError
  InputsChangedError
  LevelError
  LlmError
    GradingEnded
    OutageError
  MissingPackageError
  PackagesError
    InstallError
      LockError
    RequirementsError
  ParamsError
  SandboxError
  ScoringError
  SettingsError
  SimulationError
  SubmissionError
  TrialFaultError
  WorkerError
"""

from collections.abc import Sequence

_SHOWN_FAULTS = 200


class PcgevalError(Exception):
    """A fault in the input or the surroundings; commands print the message and exit with code 2."""


class FileError(PcgevalError):
    """A file is missing, unreadable or malformed."""


class FaultsError(PcgevalError):
    """A file or folder has faults; `faults` has all of them, the message the first two hundred."""

    def __init__(self, source: object, faults: Sequence[object]) -> None:
        """Name the source, the number of faults, and the faults."""
        lines = [f"{source}: {len(faults)} fault{'s' if len(faults) > 1 else ''}", *map(str, faults[:_SHOWN_FAULTS])]
        if len(faults) > _SHOWN_FAULTS:
            lines.append(f"and {len(faults) - _SHOWN_FAULTS} more. Fix these first.")
        super().__init__("\n  ".join(lines))
        self.faults = tuple(faults)
