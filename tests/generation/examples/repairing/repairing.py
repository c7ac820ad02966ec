from pathlib import Path

from helpers.history import History
from llms4pcg.competition import TrialContext, TrialLoop, chat_with_llm, run_evaluation
from llms4pcg.utils import log


class Repairing(TrialLoop):
    """Asks one prompt file after the other; written as an instance method, with state."""

    def __init__(self):
        self.history = History()

    def run(self, ctx: TrialContext, target_character: str) -> str:
        for prompt in Path("prompts").glob("*.txt"):
            self.history.user(prompt.read_text().replace("<OBJECT>", target_character))
            reply = chat_with_llm(ctx, self.history.messages)[0]
            self.history.assistant(reply)
            log(ctx.get_log_file_path(), f"{prompt}: {ctx.get_total_token_count()} tokens")
        ctx.get_output_file_path().write_text(self.history.messages[-1]["content"])
        return [each["content"] for each in self.history.messages if each["role"] == "assistant"][-1]


if __name__ == "__main__":
    run_evaluation("repairing", Repairing, model_name="local-model", local_model_base_url="http://localhost:3000/v1")
    run_evaluation("repairing again", Repairing)
