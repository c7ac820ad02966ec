"""Ask for a letter after two answered tasks, compute what is wrong with the answer, and ask again with that."""

from pathlib import Path

from checking import closed, faults
from llms4pcg.competition import chat_with_llm, run_evaluation
from llms4pcg.models.trial_context import TrialContext
from llms4pcg.models.trial_loop import TrialLoop

TURNS = 3
TOLD = 2  # faults that a request names; small models lose track of more
EXAMPLES = ("gate", "chair", "hat")
PROMPTS = Path("prompts")


class CheckAndRepair(TrialLoop):
    @staticmethod
    def run(ctx: TrialContext, target_character: str) -> str:
        task = text("task").replace("<OBJECT>", target_character)
        request = [message("system", text("rules")), *examples(), message("user", task)]
        messages = request
        answers = []
        for _ in range(TURNS):
            answer = closed(chat_with_llm(ctx, messages)[0])
            sentences = faults(answer)
            answers.append((len(sentences), answer))
            if not sentences:
                break
            repair = text("repair").replace("<OBJECT>", target_character)
            repair = repair.replace("<FAULTS>", " ".join(sentences[:TOLD]))
            messages = [*request, message("assistant", answer), message("user", repair)]
        return min(answers, key=lambda counted: counted[0])[1]


def examples() -> list[dict[str, str]]:
    """Return the messages of tasks that are no letters, each with its answer."""
    pairs = [(f"Build a {name}.", text(f"examples/{name}")) for name in EXAMPLES]
    return [message(role, words) for pair in pairs for role, words in zip(("user", "assistant"), pair, strict=True)]


def message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def text(name: str) -> str:
    return (PROMPTS / f"{name}.txt").read_text(encoding="utf-8").strip()


if __name__ == "__main__":
    run_evaluation("check-and-repair", CheckAndRepair, num_trials=10)
