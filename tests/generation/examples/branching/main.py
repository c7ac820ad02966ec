from pathlib import Path

from llm4pcg import competition
from llm4pcg.models.trial_context import TrialContext
from llm4pcg.models.trial_loop import TrialLoop
from search import best_thought

FOLDER = Path(__file__).parent / "prompts"


class Branching(TrialLoop):
    @classmethod
    def run(cls, ctx: TrialContext, target_character: str) -> str:
        texts = {path.name: path.read_text() for path in FOLDER.iterdir()}
        propose = texts["propose.txt"].format(object=target_character)
        return best_thought(ctx, propose, texts["rate.txt"])


if __name__ == "__main__":
    competition.run_evaluation(
        team_name="<TEAM_NAME>",
        fn=Branching,
        model_name="<MODEL_NAME>",
        local_model_base_url="<LOCAL_MODEL_BASE_URL>",
        num_trials=1,
        characters=["A", "B", "C"],
    )
