"""Checks on a team's submission: its README.md and its prompt.txt or program.

The rules for a prompt.txt say nothing about a program, which makes its prompts while it runs: it passes them.
A missing, oversized or garbled text is its author's fault and fails the criterion; one that the system refuses to read
leaves it undecided.
"""

import re

from pcgeval.checks.evidence import CheckResult, Count, Document, Evidence, NotMet, Text, Undecided, yes_or_no
from pcgeval.submissions.load import PLACEHOLDER, prompt_findings

_SEPARATORS = re.compile(r"[\s_-]+")
_PASSED_BY_PROGRAMS = CheckResult(1.0, "a program; the rule is for prompts")


def readme_length(evidence: Evidence, *, at_least_words: Count = 1) -> CheckResult:
    """README.md is text and has at least so many words."""
    words, name = len(_text(evidence.readme).split()), evidence.readme.name
    return yes_or_no(words >= at_least_words, f"{name} has {words} words; {at_least_words} are asked for")


def readme_names_team(evidence: Evidence) -> CheckResult:
    """README.md names the team; upper and lower case, hyphens, underscores and spaces count as the same."""
    text, team = (_SEPARATORS.sub(" ", name.casefold()) for name in (_text(evidence.readme), evidence.team))
    named = re.search(rf"\b{re.escape(team)}\b", text) is not None
    return yes_or_no(named, f"README.md {'names' if named else 'does not name'} the team {evidence.team!r}")


def readme_mentions(evidence: Evidence, *, text: Text) -> CheckResult:
    """README.md contains a text, in upper or lower case."""
    return _mentions(evidence.readme, text)


def prompt_length(evidence: Evidence) -> CheckResult:
    """The prompt has words, and no more than the rules of the competition allow."""
    if evidence.is_program:
        return _PASSED_BY_PROGRAMS
    words = len(_text(evidence.prompt).split())
    return yes_or_no(0 < words <= evidence.prompt_words, f"{words} words; 1 to {evidence.prompt_words} are allowed")


def prompt_characters(evidence: Evidence) -> CheckResult:
    """The prompt has only the characters that the rules of the competition allow."""
    if evidence.is_program:
        return _PASSED_BY_PROGRAMS
    # with the token and without a word limit, only the characters are left to object to
    text = _text(evidence.prompt) + PLACEHOLDER
    findings = prompt_findings(text, words=len(text))
    return yes_or_no(not findings, "; ".join(findings) or "all characters are allowed")


def prompt_names_object(evidence: Evidence) -> CheckResult:
    """The prompt has the token that is replaced by the letter, spelt exactly."""
    if evidence.is_program:
        return _PASSED_BY_PROGRAMS
    count = _text(evidence.prompt).count(PLACEHOLDER)
    return yes_or_no(count > 0, f"prompt.txt has the token {PLACEHOLDER} {count} times")


def prompt_mentions(evidence: Evidence, *, text: Text) -> CheckResult:
    """The prompt, or any text or source of the program, contains a text, in upper or lower case."""
    return _mentions(evidence.prompt, text)


def _text(document: Document) -> str:
    if document.status == "unreadable":
        raise Undecided(document.reason)
    if document.status == "refused":
        raise NotMet(document.reason)
    return document.text


def _mentions(document: Document, text: str) -> CheckResult:
    is_mentioned = text.casefold() in _text(document).casefold()
    return yes_or_no(is_mentioned, f"{document.name} {'mentions' if is_mentioned else 'does not mention'} {text!r}")
