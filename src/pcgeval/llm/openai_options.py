"""Options by their Ollama names, brought to those of OpenAI's chat completions.

Names that the interface has itself are renamed or taken as they are. What only the server's own settings can decide is
refused. Any other name goes into the body as it stands: vLLM, LM Studio and llama.cpp read `top_k`, `min_p` and more
there, each under the names of its own manual.
"""

from collections.abc import Mapping
from typing import Any

from pcgeval.llm.protocol import LlmError, Option

_RENAMED = {
    "temperature": "temperature",
    "top_p": "top_p",
    "seed": "seed",
    "num_predict": "max_tokens",
    "stop": "stop",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
}
# how Ollama loads a model: an endpoint of this kind has loaded its own already
_LOADING = frozenset(
    {
        *("num_ctx", "num_batch", "num_gpu", "main_gpu", "low_vram", "f16_kv", "vocab_only"),
        *("use_mmap", "use_mlock", "num_thread", "num_keep", "numa"),
    }
)
# what this program says itself, and what would change the shape of the answer
_RESERVED = frozenset(
    {
        *("model", "messages", "stream", "stream_options", "n", "tools", "tool_choice", "functions", "logprobs"),
        *("max_tokens", "max_completion_tokens", "response_format"),
    }
)


def wire_fields(model: str, options: Mapping[str, Option]) -> dict[str, Any]:
    """Return the client's arguments for a request's options.

    Raises:
        LlmError: An option that such an endpoint cannot obey.
    """
    if loading := sorted(_LOADING & set(options)):
        raise LlmError(
            f"model {model}: the backend openai cannot pass on {loading[0]!r}: the endpoint loads its model itself. "
            "Set it there, and take it out of the model's options in params.yaml."
        )
    if reserved := sorted(_RESERVED & set(options)):
        hint = "num_predict" if "tokens" in reserved[0] else "something else"
        raise LlmError(f"model {model}: {reserved[0]!r} is not an option. Use {hint}.")
    fields = {name: options[ours] for ours, name in _RENAMED.items() if ours in options}
    most = fields.get("max_tokens", 1)
    if isinstance(most, bool) or not isinstance(most, int):
        raise LlmError(f"model {model}: num_predict is {most!r}. Set it to a number of tokens.")
    if most <= 0:
        del fields["max_tokens"]  # Ollama's ways to say "until the model stops"; here that is said by silence
    return {**fields, "extra_body": {name: options[name] for name in options if name not in _RENAMED}}
