"""The result of pretraining: the model, its metrics on held-out text, and what the run took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warmstart.notebook import Shown
from warmstart.runs.steps import NextStep, attention_step, command, free_name
from warmstart.runs.verdict import Verdict
from warmstart.stats.formatting import percent

if TYPE_CHECKING:
    from warmstart.commands.settings import PretrainConfig
    from warmstart.corpora.relevant import CorpusRead, DomainText
    from warmstart.corpora.store import TokenText
    from warmstart.corpora.write import TokenSides
    from warmstart.generation.sample import TextSample
    from warmstart.model.bundle import Bundle
    from warmstart.training.loop import TrainOutput

TEXT_HEADER = ("text", "documents", "words", "tokens", "tokens per word", "unknown")
METRICS_HEADER = ("on all held-out text", "value")
FEWEST_WORDS = 1_000
"""words of held-out text below which a figure comes with a warning"""
BEGUN, FLUENT = {"word": 300, "token": 100}, {"word": 60, "token": 20}
"""perplexities above which a model has barely begun, and below which it knows the text. Per word: counts of three words in a row
reach about 140 on news, counts of single words about 700 (Mikolov 2012, chapter 4); per token, a word has one or two"""
MANY_PASSES = 16
"""over a text, after which reading it again brings almost nothing (Muennighoff et al. 2023)"""
HOUR = 3600


@dataclass(frozen=True)
class PretrainResult(Shown, view="commands.pretrain.page:pretrain_view"):
    """A pretrained model and how it was trained."""

    bundle: Bundle
    objective: str
    training: TrainOutput
    metrics: Mapping[str, float]
    """on all held-out text at the end, in float32; empty if no text is held out"""
    stores: TokenSides
    """the training text and the held-out text"""
    domain: DomainText | None = None
    """source of the text, if it was chosen for a task"""
    sample: TextSample | None = None
    """sample of its writing, or of the words that it fills in"""

    @property
    def findings(self) -> list[str]:
        """Sentences on the time of training and the main metric."""
        took = f"After {self.training.tokens:,} tokens in {self.training.seconds / 60:.1f} minutes"
        if not self.metrics:
            return [f"{took}, no metric is known, because no text was held out."]
        name, value = self._main_metric()
        return [f"{took}, the {name} is {value}.", *filter(None, [self.little_held_out])]

    @property
    def little_held_out(self) -> str:
        """Warning that the metrics rest on little text; empty if they do not."""
        held_out = self.stores[1]
        if held_out is None or (words := held_out.counts.words) >= FEWEST_WORDS:
            return ""
        return f"Only {words:,} words are held out: other words may give quite other figures; `--held-out FILE` names more."

    def _main_metric(self) -> tuple[str, str]:
        """The metric that compares between tokenizers, if the objective has it."""
        for key in ("word_perplexity", "causal word_perplexity"):
            if key in self.metrics:
                _, held_out = self.stores
                words = f" of {held_out.counts.words:,} words including line ends" if held_out else ""
                return f"word-level perplexity on held-out text{words}", f"{self.metrics[key]:.1f}"
        name = next(key for key in self.metrics if key.endswith("loss"))
        return f"{name} on held-out text", f"{self.metrics[name]:.3f} nats"

    def verdict(self, config: PretrainConfig | None = None) -> Verdict:
        """The first screen: how far it has come, a sample, and, with the settings of a run, what to do next."""
        headline, unfinished = self._progress()
        return Verdict(
            f"A {self.objective} language model",
            f"{self.training.tokens:,} tokens",
            self.training.tokens,
            headline,
            use=(*([self.sample.sentence] if self.sample else []), self.findings[0]),
            steps=self._steps(config, unfinished=unfinished) if config else (),
            mind=(self.little_held_out,) if self.metrics and self.little_held_out else (),
        )

    def _progress(self) -> tuple[str, bool]:
        """Sentence on its progress, by the perplexity on held-out text, and whether more training is the next step."""
        if not self.metrics:
            return "How far it has come is unknown, because no text was held out.", True
        words = [value for key, value in self.metrics.items() if key.endswith("word_perplexity")]
        unit = "word" if words else "token"
        value = [*words, *(value for key, value in self.metrics.items() if key.endswith("perplexity"))][0]
        known = f"(perplexity {value:,.0f} per {unit})"
        more = "an hour" if self.training.seconds < HOUR else "more time"
        if self.training.tokens > MANY_PASSES * self.stores[0].total_tokens:
            more = "more text"
        if value > BEGUN[unit]:
            return f"It has barely begun {known}: give it {more}.", more != "more text"
        if value > FLUENT[unit]:
            return f"It has learned a part {known}: it gets better with {more}.", more != "more text"
        return f"It knows this kind of text {known}: adapt it to your task.", False

    def _steps(self, config: PretrainConfig, *, unfinished: bool) -> tuple[NextStep, ...]:
        """Steps to train it for another hour, to see more of it, and to compare it on the task that its text was chosen for."""
        steps = list[NextStep | None]()
        if unfinished:
            settings, out = str(Path(config.out) / "config.yaml"), free_name(config.out)
            again = command("pretrain", "--config", settings, "--init-from", config.out, *self._budget(config), "--out", out)
            steps.append(NextStep("pretrain", "Train it for an hour more", again))
        if self.sample and self.bundle.generates:
            steps.append(NextStep("generate", "Let it write", command("generate", config.out, self.sample.text)))
        elif self.sample:
            steps.append(attention_step(config.out, [self.sample.text]))
        if task := config.domain.for_task:
            words = ["race", task, "--backbones", config.out, "--budget", "30m", "--out", free_name("runs/race")]
            steps.append(NextStep("race", "Compare it with other methods on your task", command(*words)))
        return (*filter(None, steps), NextStep("serve", "Use it in the browser", command("serve", config.out)))

    def _budget(self, config: PretrainConfig) -> tuple[str, str]:
        """Flag of a budget of an hour at the same speed, of the kind that the run had."""
        named = next((name for name in ("steps", "tokens", "epochs") if getattr(config.train, name)), "minutes")
        if named == "minutes" and not config.train.compile:
            return "--minutes", str(HOUR // 60)
        times = HOUR / max(self.training.seconds, 1)
        if named == "epochs":
            return "--epochs", f"{times * (config.train.epochs or 1):.3g}"
        whole = self.training.steps if named == "steps" else self.training.tokens
        return "--steps" if named == "steps" else "--tokens", f"{float(f'{times * whole:.2g}'):.0f}"

    @property
    def loss_caption(self) -> str:
        """The caption of the chart of losses."""
        return "Loss in nats per predicted token, on training and on held-out text."

    def text_table(self) -> list[tuple[str, ...]]:
        """One row per text under ``TEXT_HEADER``."""
        return [(name, *_text_row(store)) for name, store in zip(("training", "held out"), self.stores, strict=True) if store]

    def to_dict(self) -> dict[str, Any]:
        """Everything but the model and the text, as plain values, fit for JSON."""
        return {
            "objective": self.objective,
            "findings": self.findings,
            "steps": self.training.steps,
            "tokens": self.training.tokens,
            "seconds": self.training.seconds,
            "held_out": dict(self.metrics),
        } | ({"domain": self.domain.to_dict()} if self.domain else {})


def _text_row(store: TokenText) -> tuple[str, ...]:
    """The figures of one text."""
    predicted = store.predicted_tokens
    return (
        f"{store.documents:,}",
        f"{store.counts.words:,}",
        f"{store.total_tokens:,}",
        f"{predicted / store.counts.words:.2f}",
        percent(store.counts.unknown / predicted, 2),
    )


CORPORA_HEADER = ("text", "passages", "kept", "words kept", "like a test or validation text", "known already")


def domain_sentences(domain: DomainText) -> list[str]:
    """Sentences about the text that was read for a task, and the text left out."""
    often = "" if domain.pool_times == 1 else f", each read {domain.pool_times} times in a pass"
    sentences = [
        f"The task's own text is {domain.pool_texts:,} texts of {domain.pool_words:,} words{often}; {domain.held_out:,} of them "
        f"are held out, and {domain.pool_left_out:,} like one of validation or test are left out."
    ]
    sentences += [_corpus_sentence(corpus) for corpus in domain.corpora]
    if domain.most and domain.least:
        times = ", ".join(f"{count:,} {_often(number)}" for number, count in reversed([*enumerate(domain.times, 1)]))
        sentences += [
            f"In one pass, {times}: the more relevant, the more often.",
            f"The most relevant passage (similarity {domain.most.relevance:.2f}): {_shortened(domain.most.text)}",
            f"The least relevant one that is kept (similarity {domain.least.relevance:.2f}): {_shortened(domain.least.text)}",
        ]
    return sentences


def corpora_table(domain: DomainText) -> list[tuple[str, ...]]:
    """One row per file or folder of text under ``CORPORA_HEADER``."""
    rows = [(text.path, text.passages, text.kept, text.words, text.left_out, text.known) for text in domain.corpora]
    return [(path, *(f"{figure:,}" for figure in figures)) for path, *figures in rows]


def _corpus_sentence(corpus: CorpusRead) -> str:
    return (
        f"Of {corpus.passages:,} passages of {corpus.path}, the {corpus.kept:,} most relevant are kept ({corpus.words:,} words); "
        f"{corpus.left_out:,} like a text of validation or test and {corpus.known:,} known already are left out."
    )


def _often(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


def _shortened(text: str, longest: int = 160) -> str:
    """The beginning of a text, on one line, in quotation marks."""
    line = " ".join(text.split())
    return f'"{line if len(line) <= longest else line[:longest].rstrip() + "…"}"'
