"""The task's loss beside the loss of pretraining, in the same steps (Yao et al. 2022, equation 1).

    loss = mean loss of the objective + weight * mean loss of the task's labelled texts

Every batch of text is followed by one of labelled texts, which a head of the task's own reads on the same backbone. The sum over
its texts is multiplied by a constant, targets per labelled text, because a step is divided by its targets: so k batches of b count
exactly as one of k b, and the weight means the same for every objective. The task's head is kept in checkpoints, never in a bundle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from warmstart.data.budget import LabelBudget
from warmstart.data.pretraining_rows import PretrainingRows
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.finetune import head_config_for
from warmstart.model.model import Model, different_tensors, swap_head
from warmstart.objectives import OBJECTIVES
from warmstart.tasks import task_type_of
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.types import Batch


class LabelledBatch(Batch):
    """Labelled texts of a task; ``count`` is 0: the loss of a step is divided by the targets of its other batches."""


class WithTask(nn.Module):
    """A language model and the head of a task on its backbone: what the training loop trains and keeps in checkpoints."""

    def __init__(self, language: Model, task: Model, factor: float) -> None:
        super().__init__()
        self.language = language
        self.task = task
        self.factor = factor
        """times the summed loss of labelled texts"""

    def loss(self, batch: Batch) -> Tensor:
        """The summed loss of a batch in nats, a scalar, to be divided by the number of the objective's targets."""
        return self.factor * self.task.loss(batch) if isinstance(batch, LabelledBatch) else self.language.loss(batch)

    def weights(self) -> dict[str, Tensor]:
        """Every tensor to keep, by name; those of the shared backbone are named once."""
        return different_tensors(self)


@dataclass(frozen=True)
class JointTask:
    """The labelled texts that are learned beside pretraining."""

    budget: LabelBudget
    weight: float

    def attach(self, language: Model, rows: PretrainingRows, batch: int) -> WithTask:
        """The model with a new head for the task; ``batch`` is the rows, and at most the labelled texts, of one batch."""
        task = swap_head(language, head_config_for(self.budget.task, FineTuneConfig()), self.budget.seed)
        targets = OBJECTIVES[rows.objective.name].target_fractions(rows.objective)[0] * rows.mean_tokens
        return WithTask(language, task, self.weight * targets * batch / min(batch, len(self.budget.train)))

    def with_labelled_batches(
        self, batches: Callable[[int], list[Batch]], model: WithTask, tokenizer: Tokenizer, size: tuple[int, int]
    ) -> Callable[[int], list[Batch]]:
        """The same batches and as many of labelled texts; also a pure function of the step. ``size`` is (batch, accumulate)."""
        train, task_type = self.budget.task.train, task_type_of(self.budget.task)
        encoded = task_type.encode(model.task, tokenizer, train.texts)
        labelled = task_type.batches(train, encoded, size, self.budget.seed, tokenizer.specials.pad, causal=model.task.causal)

        def both(step: int) -> list[Batch]:
            return [*batches(step), *(LabelledBatch.of(batch, count=0) for batch in labelled(step))]

        return both
