"""Ask for a letter, check the answer, and ask again with what was wrong; at most once."""

from pathlib import Path

from checking import faults
from llms4pcg.competition import chat_with_llm, run_evaluation
from llms4pcg.models.trial_context import TrialContext
from llms4pcg.models.trial_loop import TrialLoop

TURNS = 2
PROMPTS = Path("prompts")


class CheckAndRepair(TrialLoop):
    @staticmethod
    def run(ctx: TrialContext, target_character: str) -> str:
        build = (PROMPTS / "build.txt").read_text(encoding="utf-8").replace("<OBJECT>", target_character)
        repair = (PROMPTS / "repair.txt").read_text(encoding="utf-8").replace("<OBJECT>", target_character)
        messages = [{"role": "user", "content": build}]
        answers = []
        for _ in range(TURNS):
            answer = chat_with_llm(ctx, messages)[0]
            found = faults(answer)
            answers.append((len(found), answer))
            if not found:
                break
            messages += [
                {"role": "assistant", "content": answer},
                {"role": "user", "content": repair.replace("<FAULTS>", " ".join(found))},
            ]
        return min(answers, key=lambda each: each[0])[1]


if __name__ == "__main__":
    run_evaluation("check-and-repair", CheckAndRepair, num_trials=10)
