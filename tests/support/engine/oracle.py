"""What ``transformers`` says about a finished answer: the target half of the independent simulation."""

from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from tests.support.engine.simulation import Drafter, default_aux_layers

AHEAD = 4
"""Tokens to continue an answer by: the deepest draft, since SGLang counts drafts past an answer's end too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One answer as the reference model reads it.

    sequence: prompt, output, then the model's own greedy continuation [S] int64. greedy: the model's choice after
    each token but the last [S - 1]. margin: gap of its two best logits there [S - 1]. hidden: input of every
    layer, and the last output, [layers + 1, S, H] fp32.
    """

    sequence: torch.Tensor
    prompt_len: int
    output_len: int
    greedy: torch.Tensor
    margin: torch.Tensor
    hidden: torch.Tensor

    def features(self, drafter: Drafter) -> torch.Tensor:
        """Return the three layers that this drafter reads, side by side, [S, 3 H]."""
        layers = drafter.aux_layers or default_aux_layers(self.hidden.shape[0] - 1)
        return torch.cat([self.hidden[i] for i in layers], dim=-1)

    def first_divergence(self) -> tuple[int, float] | None:
        """Return the first output token that the model would not have chosen, and its margin there."""
        start = self.prompt_len - 1
        said = self.sequence[start + 1 : start + 1 + self.output_len]
        differs = (self.greedy[start : start + self.output_len] != said).nonzero()
        if not differs.numel():
            return None
        place = int(differs[0])
        return place, float(self.margin[start + place])


class Oracle:
    """A target loaded by ``transformers`` in fp32."""

    def __init__(self, folder: Path) -> None:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
        self.model: PreTrainedModel = model.eval()
        self._readings: dict[tuple[tuple[int, ...], tuple[int, ...]], Reading] = {}
        self.embedding: torch.Tensor = model.get_input_embeddings().weight.detach()

    def read(self, prompt: tuple[int, ...], output: tuple[int, ...]) -> Reading:
        """Read an answer, given token by token, and continue it by AHEAD tokens of the model's own.

        Readings are kept: servers that change no token give the same answers again and again.
        """
        known = self._readings.get((prompt, output))
        if known is not None:
            return known
        ids = torch.tensor([[*prompt, *output]])
        with torch.inference_mode():
            for _ in range(AHEAD):
                ids = torch.cat((ids, self.model(ids).logits[:, -1:].argmax(-1)), dim=1)
            result = self.model(ids, output_hidden_states=True)
        logits = result.logits[0, :-1].float()
        best = logits.topk(2, dim=-1).values
        reading = Reading(
            sequence=ids[0],
            prompt_len=len(prompt),
            output_len=len(output),
            greedy=logits.argmax(-1),
            margin=best[:, 0] - best[:, 1],
            hidden=torch.stack(result.hidden_states)[:, 0].float(),
        )
        self._readings[prompt, output] = reading
        return reading
