"""Ask for a letter, compute what is wrong with the answer, and ask again with that."""

from pathlib import Path

from checking import faults
from llms4pcg.competition import chat_with_llm, run_evaluation
from llms4pcg.models.trial_context import TrialContext
from llms4pcg.models.trial_loop import TrialLoop

TURNS = 3
TOLD = 2  # faults that a request names; small models lose track of more
PROMPTS = Path("prompts")


class CheckAndRepair(TrialLoop):
    @staticmethod
    def run(ctx: TrialContext, target_character: str) -> str:
        task = [{"role": "user", "content": text("task").replace("<OBJECT>", target_character)}]
        repair = text("repair").replace("<OBJECT>", target_character)
        messages = task
        answers = []
        for _ in range(TURNS):
            answer = chat_with_llm(ctx, messages)[0]
            sentences = faults(answer)
            answers.append((len(sentences), answer))
            if not sentences:
                break
            request = repair.replace("<FAULTS>", " ".join(sentences[:TOLD]))
            messages = [*task, {"role": "assistant", "content": answer}, {"role": "user", "content": request}]
        return min(answers, key=lambda counted: counted[0])[1]


def text(name: str) -> str:
    return (PROMPTS / f"{name}.txt").read_text(encoding="utf-8").strip()


if __name__ == "__main__":
    run_evaluation("check-and-repair", CheckAndRepair, num_trials=10)
