from pathlib import Path

from chatgpt4pcg.competition import chat_with_chatgpt, run_evaluation
from chatgpt4pcg.models.trial_context import TrialContext
from chatgpt4pcg.models.trial_loop import TrialLoop
from dotenv import load_dotenv
from openai import OpenAI, RateLimitError
from openai.types.chat import ChatCompletionUserMessageParam


class OneShot(TrialLoop):
    @staticmethod
    def run(ctx: TrialContext, target_character: str) -> str:
        with Path("prompts/task.txt").open() as file:
            prompt = file.read().replace("<OBJECT>", target_character)
        try:
            return chat_with_chatgpt(ctx, [ChatCompletionUserMessageParam(role="user", content=prompt)])[0]
        except RateLimitError:
            return ""


if __name__ == "__main__":
    load_dotenv()
    client = OpenAI(api_key="none")
    run_evaluation("one_shot", OneShot, num_trials=10, characters=["I", "L"])
