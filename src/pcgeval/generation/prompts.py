"""Running a prompt submission: one request a trial, and its reply is the response."""

from pcgeval.core.params import Limits
from pcgeval.core.trials import Exchange
from pcgeval.generation.tasks import TrialCall, TrialRun
from pcgeval.llm.protocol import CallError, ChatReply, Message
from pcgeval.submissions.load import Prompt


class PromptRunner:
    """Asks a prompt once a trial."""

    def __init__(self, prompt: Prompt, limits: Limits) -> None:
        """Take the prompt, and the tokens and seconds that a trial may use."""
        self._prompt, self._limits = prompt, limits

    def run_trial(self, call: TrialCall) -> TrialRun:
        """Return the model's reply as the response; a call that fails is a failed trial."""
        request = call.request((Message("user", self._prompt.for_letter(call.trial.letter)),))
        try:
            reply = call.backend.chat(request, self._limits.seconds)
        except CallError as error:
            return TrialRun("", (), (), str(error))
        return TrialRun(reply.text, (Exchange(request.key, reply),), (), _over_limit(reply, self._limits))


def _over_limit(reply: ChatReply, limits: Limits) -> str | None:
    if (used := reply.prompt_tokens + reply.output_tokens) > limits.tokens:
        return f"used {used} tokens; the limit is {limits.tokens}"
    if reply.seconds > limits.seconds:
        return f"took {reply.seconds:.0f} s; the limit is {limits.seconds:.0f} s"
    return None
