"""Let the model plan the letter in words, compute whether the plan stands, and let the model write it as calls."""

from pathlib import Path

from llms4pcg.competition import chat_with_llm, run_evaluation
from llms4pcg.models.trial_context import TrialContext
from llms4pcg.models.trial_loop import TrialLoop
from plans import falling, level_of, plan_of

PLANS = 4  # requests for a plan, until one stands
LEVELS = 2  # requests for its calls, until they stand
FEWEST = 3  # steps of a plan


class ChainOfThought(TrialLoop):
    @staticmethod
    def run(ctx: TrialContext, target_character: str) -> str:
        plan, answer = ask_for_plan(ctx, target_character)
        if not plan:
            return answer  # it holds no level; the trial fails
        build = request_text("build", OBJECT=target_character, PLAN=", ".join(map(str, plan)))
        answers = []
        for _ in range(LEVELS):
            answers.append(chat_with_llm(ctx, [{"role": "user", "content": build}])[0])
            level = level_of(answers[-1])
            if len(level) >= FEWEST and not falling(level):
                break
        return max(answers, key=lambda answer: len(level_of(answer)))


def ask_for_plan(ctx: TrialContext, letter: str):
    """Return the first plan that stands, or else the longest one, and the last answer."""
    request = [
        {"role": "system", "content": request_text("plan")},
        {"role": "user", "content": f"{letter}:"},
    ]
    messages = request
    plans = []
    for _ in range(PLANS):
        answer = chat_with_llm(ctx, messages)[0]
        plans.append(plan_of(answer))
        step = falling(plans[-1])
        if len(plans[-1]) >= FEWEST and not step:
            return plans[-1], answer
        if step:
            fault = request_text("fault", OBJECT=letter, STEP=step)
            messages = [*request, {"role": "assistant", "content": answer}, {"role": "user", "content": fault}]
    return max(plans, key=len), answer


def request_text(request: str, **values: object) -> str:
    text = Path("requests", f"{request}.txt").read_text(encoding="utf-8").strip()
    for name, value in values.items():
        text = text.replace(f"<{name}>", str(value))
    return text


if __name__ == "__main__":
    run_evaluation("chain-of-thought", ChainOfThought, num_trials=10)
