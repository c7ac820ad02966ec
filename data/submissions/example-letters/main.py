"""Show the model a level of the very letter that is asked for; every third trial it builds the letter on its own."""

from pathlib import Path

from answers import completeness, likeness
from llms4pcg.competition import chat_with_llm, run_evaluation
from llms4pcg.models.trial_context import TrialContext
from llms4pcg.models.trial_loop import TrialLoop

TRIES = 3
LAST_TRIES = 4  # with a request that even a very small model answers, if there is no level yet
ENOUGH = 0.8  # of an answer's quality, which ends the trial
LETTERS, REQUESTS = Path("letters"), Path("requests")


class ExampleLetters(TrialLoop):
    @staticmethod
    def run(ctx: TrialContext, target_character: str) -> str:
        on_its_own = ctx.get_trial_number() % 3 == 0
        level = level_of(target_character)
        first, second = [letter for letter in "HLU" if letter != target_character][:2]
        values = {
            "<OBJECT>": target_character,
            "<LEVEL>": level,
            "<FIRST>": first,
            "<FIRST LEVEL>": level_of(first),
            "<SECOND>": second,
            "<SECOND LEVEL>": level_of(second),
        }
        requests = ["own" if on_its_own else "copy"] * TRIES + ["comment"] * LAST_TRIES
        best, best_quality = "", 0.0
        for number, request in enumerate(requests):
            answer = chat_with_llm(ctx, [{"role": "user", "content": text_of(request, values)}])[0]
            quality = completeness(answer) if on_its_own else likeness(answer, level)
            if quality >= best_quality:
                best, best_quality = answer, quality
            if best_quality >= ENOUGH or (best_quality > 0 and number + 1 >= TRIES):
                break
        return best


def level_of(letter: str) -> str:
    return (LETTERS / f"{letter}.txt").read_text(encoding="utf-8").strip()


def text_of(request: str, values: dict[str, str]) -> str:
    text = (REQUESTS / f"{request}.txt").read_text(encoding="utf-8").strip()
    for name, value in values.items():
        text = text.replace(name, value)
    return text


if __name__ == "__main__":
    run_evaluation("example-letters", ExampleLetters, num_trials=10)
