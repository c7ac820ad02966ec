"""Evaluate Science Birds levels that language models write.

`help(pcgeval.score_level)` explains one name. A name is imported on first use, so that converting a level does not load
a neural network. The public interface, functions before the types that they take and return:

A level:       score_level, extract_code, level_xml, simulate, render, diversity, Classifier, Predictions, LevelScore,
               Stability, PhysicsParams, Similarity, LevelError, PcgevalError
Many levels:   evaluate, EvaluationSummary, LevelRow
A competition: score_competition, rank, CompetitionResults, TeamResults, LetterResults, Entry, Provenance, ScoringRules,
               CompetitionScores, Entrant, Ranking, ScoreInterval
Rubrics:       run_judge, load_rubric, extract_leaf_grades, get_grade_summary, TaskNode, GradedTaskNode, JudgeOutput,
               GradeSummary, JudgeSettings, Model, CallFiles, Computer, SandboxComputer
Of PaperBench: Judge, SimpleJudge, RandomJudge, DummyJudge, OpenAICompletionsTurnCompleter
Training:      load_environment, PaperBenchRubric
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the public interface: type checkers read these lines, and so does __getattr__ below
    from pcgeval.bulk.evaluate import EvaluationSummary as EvaluationSummary, evaluate as evaluate
    from pcgeval.bulk.level_table import LevelRow as LevelRow
    from pcgeval.core.errors import PcgevalError as PcgevalError
    from pcgeval.evaluator.image import render as render
    from pcgeval.evaluator.physics import simulate as simulate
    from pcgeval.evaluator.world import Stability as Stability
    from pcgeval.formats.params import Model as Model, PhysicsParams as PhysicsParams, Similarity as Similarity
    from pcgeval.formats.results import ScoreInterval as ScoreInterval
    from pcgeval.judge.calls import CallFiles as CallFiles
    from pcgeval.judge.run import (
        DummyJudge as DummyJudge,
        Judge as Judge,
        OpenAICompletionsTurnCompleter as OpenAICompletionsTurnCompleter,
        RandomJudge as RandomJudge,
        SimpleJudge as SimpleJudge,
        run_judge as run_judge,
    )
    from pcgeval.judge.settings import JudgeSettings as JudgeSettings
    from pcgeval.levels.conversion import LevelError as LevelError, extract_code as extract_code, level_xml as level_xml
    from pcgeval.preview.level_score import LevelScore as LevelScore, score_level as score_level
    from pcgeval.rl import PaperBenchRubric as PaperBenchRubric, load_environment as load_environment
    from pcgeval.rubric.grades import GradedTaskNode as GradedTaskNode
    from pcgeval.rubric.output import (
        GradeSummary as GradeSummary,
        JudgeOutput as JudgeOutput,
        extract_leaf_grades as extract_leaf_grades,
        get_grade_summary as get_grade_summary,
    )
    from pcgeval.rubric.tree import TaskNode as TaskNode, load_rubric as load_rubric
    from pcgeval.sandbox.reproduction import SandboxComputer as SandboxComputer
    from pcgeval.scoring.formulas import CompetitionScores as CompetitionScores, score_competition as score_competition
    from pcgeval.scoring.inputs import (
        CompetitionResults as CompetitionResults,
        Entry as Entry,
        LetterResults as LetterResults,
        Provenance as Provenance,
        ScoringRules as ScoringRules,
        TeamResults as TeamResults,
    )
    from pcgeval.scoring.ranking import Entrant as Entrant, Ranking as Ranking, rank as rank
    from pcgeval.similarity.classifier import Classifier as Classifier, Predictions as Predictions
    from pcgeval.similarity.diversity import diversity as diversity
    from pcgeval.submissions.load import Computer as Computer

    __version__: str
else:
    import functools

    @functools.cache
    def _modules() -> dict[str, str]:
        """Return the module of each public name, from the imports above."""
        import ast

        statements = ast.parse(__spec__.loader.get_source(__name__)).body
        public = next(statement for statement in statements if isinstance(statement, ast.If)).body
        imports = [statement for statement in public if isinstance(statement, ast.ImportFrom)]
        return {alias.name: statement.module for statement in imports for alias in statement.names}

    def __getattr__(name: str) -> object:
        """Import a public name from its module when it is first used."""
        import importlib

        if name == "__version__":
            return importlib.import_module("importlib.metadata").version("pcgeval")
        if name not in _modules():
            raise AttributeError(f"module 'pcgeval' has no attribute {name!r}")
        return getattr(importlib.import_module(_modules()[name]), name)

    def __dir__() -> list[str]:
        return sorted(["__version__", *_modules()])
