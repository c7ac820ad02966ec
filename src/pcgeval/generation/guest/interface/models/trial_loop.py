"""Define the class that a program derives from."""

from abc import ABC, abstractmethod

from .trial_context import TrialContext


class TrialLoop(ABC):
    """The base class of a program that makes one level."""

    @staticmethod
    @abstractmethod
    def run(ctx: TrialContext, target_character: str) -> str:
        """Return the answer of one trial: text with a code block of drop_block calls for the character."""
