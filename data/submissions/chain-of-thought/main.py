"""Let the model plan the letter in words first, then write its plan as calls."""

from pathlib import Path

from llms4pcg.competition import chat_with_llm, run_evaluation
from llms4pcg.models.trial_context import TrialContext
from llms4pcg.models.trial_loop import TrialLoop
from plans import EXAMPLES, calls_of, count_calls, examples_for, plan_of

PLANS = 3  # requests for a plan, until one has two steps
DEFAULT_PLAN = "post 8, post 10, plank 9"
TRIES = ("build", "build", "comment", "comment", "comment", "comment")
FEWEST = 2  # steps of a plan, calls of a level


class ChainOfThought(TrialLoop):
    @staticmethod
    def run(ctx: TrialContext, target_character: str) -> str:
        plan = ask_for_plan(ctx, target_character)
        example = "T" if target_character == "U" else "U"
        values = {
            "<OBJECT>": target_character,
            "<PLAN>": plan,
            "<CALLS>": calls_of(plan),
            "<EXAMPLE>": f"{example}: {EXAMPLES[example]}",
            "<EXAMPLE CALLS>": calls_of(EXAMPLES[example]),
        }
        answers = []
        for request in TRIES:
            message = {"role": "user", "content": request_text(request, values)}
            answers.append(chat_with_llm(ctx, [message])[0])
            if count_calls(answers[-1]) >= FEWEST:
                break
        return max(answers, key=count_calls)


def ask_for_plan(ctx: TrialContext, letter: str) -> str:
    examples = "\n".join(f"{example}: {EXAMPLES[example]}" for example in examples_for(letter))
    messages = [
        {"role": "system", "content": request_text("plan", {"<EXAMPLES>": examples})},
        {"role": "user", "content": f"{letter}:"},
    ]
    for _ in range(PLANS):
        plan = plan_of(chat_with_llm(ctx, messages)[0], letter)
        if plan.count(",") + 1 >= FEWEST:
            return plan
    return DEFAULT_PLAN


def request_text(request: str, values: dict[str, str]) -> str:
    text = Path("requests", f"{request}.txt").read_text(encoding="utf-8").strip()
    for name, value in values.items():
        text = text.replace(name, value)
    return text


if __name__ == "__main__":
    run_evaluation("chain-of-thought", ChainOfThought, num_trials=10)
