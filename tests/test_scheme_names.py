"""Schemes by name: what they mean together, what is refused, and when parts are unfrozen."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from helpers.models import make_backbone
from warmstart.adapters.bottleneck import BottleneckConfig
from warmstart.adapters.lora import LoraConfig
from warmstart.adapters.scalar_mix import ScalarMixConfig
from warmstart.errors import ConfigError
from warmstart.finetuning.apply import apply_scheme
from warmstart.finetuning.compose import make_scheme
from warmstart.finetuning.scheme import Scheme
from warmstart.finetuning.schemes import SCHEMES, SchemeOptions
from warmstart.finetuning.schemes.bottleneck import norms
from warmstart.finetuning.schemes.full import all_parameters
from warmstart.finetuning.schemes.gradual import unfrozen_at
from warmstart.finetuning.schemes.l2_sp import L2SPPenalty
from warmstart.finetuning.schemes.lp_ft import at_first
from warmstart.finetuning.unfreezing import frozen_until
from warmstart.heads.classification import ClassificationHeadConfig
from warmstart.model.model import Model, fresh_head

REFUSED = {
    "full+probe": "full and probe both decide which parameters train; name only one of them",
    "full+lora": "full trains the whole backbone, but lora trains only a part of the backbone; name only one of them",
    "bitfit+full": "bitfit trains only a part of the backbone, but full trains the whole backbone; name only one of them",
    "probe+lora": "probe freezes the backbone, but lora trains only a part of the backbone; name only one of them",
    "probe+gradual": "gradual needs at least a part of the backbone to train, but probe freezes the backbone",
    "lm-loss+probe": "lm-loss needs at least a part of the backbone to train, but probe freezes the backbone",
    "contrast+probe": "contrast needs at least a part of the backbone to train, but probe freezes the backbone",
    "gradual+lp-ft": "gradual and lp-ft both decide when parameters are unfrozen; name only one of them",
    "houlsby+pfeiffer": "houlsby and pfeiffer both decide where bottleneck adapters are inserted; name only one of them",
    "lora+l2-sp": "l2-sp needs the whole backbone to train, but lora trains only a part of the backbone",
    "lora+lora": "each scheme can be named only once, but lora is named twice in lora+lora",
    "lora+scalar-mx": "unknown scheme 'scalar-mx'; did you mean 'scalar-mix'?",
    "": "unknown scheme ''",
    "full+": "unknown scheme ''",
}


@pytest.mark.parametrize("names", REFUSED)
def test_contradictions_are_refused(names: str) -> None:
    """The message names both schemes and says what to do."""
    with pytest.raises(ConfigError) as error:
        make_scheme(names)
    assert REFUSED[names] in str(error.value)


def test_order_does_not_matter_and_every_pair_is_decided() -> None:
    """Of any two names, both orders compose to the same training, or both are refused."""

    def verdict(names: str) -> object:
        try:
            scheme = make_scheme(names)
        except ConfigError:
            return None
        return replace(scheme, adapters=frozenset(scheme.adapters), trains=frozenset(scheme.trains))

    for one, other in itertools.combinations(SCHEMES, 2):
        assert verdict(f"{one}+{other}") == verdict(f"{other}+{one}"), (one, other)


def test_names_that_do_not_say_what_trains() -> None:
    """They are combined with ``full``; ``scalar-mix`` alone with ``probe``."""
    assert make_scheme("gradual") == make_scheme("full+gradual")
    assert make_scheme("scalar-mix") == make_scheme("probe+scalar-mix")
    assert make_scheme("scalar-mix+lm-loss").trains == (all_parameters,)
    assert make_scheme("full") == Scheme(trains=(all_parameters,))
    assert make_scheme("dapt") == make_scheme("dapt+full") == Scheme(trains=(all_parameters,), continued_pretraining=True)
    assert make_scheme("dapt+scalar-mix") == replace(make_scheme("scalar-mix"), continued_pretraining=True)
    assert [name for name in SCHEMES if make_scheme(name).keeps_features] == ["probe", "scalar-mix"]


def test_options_reach_their_schemes() -> None:
    """Each option changes the scheme that its help names, and no other."""
    options = SchemeOptions(
        adapter_width=3, adapter_norms="no", lora_rank=2, lora_targets=("out",), lm_weight=0.1, l2_sp_strength=0.2
    )
    assert make_scheme("houlsby+lora+scalar-mix", options).adapters == (
        BottleneckConfig(width=3),
        LoraConfig(rank=2, targets=("out",)),
        ScalarMixConfig(),
    )
    assert make_scheme("houlsby", options).trains == ()
    assert make_scheme("pfeiffer", SchemeOptions(adapter_norms="yes")).trains == (norms,)
    assert make_scheme("lm-loss+l2-sp", options).language_weight == 0.1
    assert make_scheme("l2-sp", options).penalty == L2SPPenalty(0.2, 0.01)
    assert make_scheme("l2-sp").weight_decay == 0
    assert make_scheme("full", options) == make_scheme("full")


def rate_factors(names: str, progress: float, **options: float) -> dict[str, float]:
    """For one parameter of each level: what its learning rate is multiplied by at some progress of the run."""
    backbone = make_backbone()
    model = Model(backbone, fresh_head(ClassificationHeadConfig(classes=2), backbone, 0), causal=False)
    groups = apply_scheme(model, make_scheme(names, SchemeOptions.build(options)))
    rates = {name: group.rate_factor * group.schedule(progress) for group in groups for name in group.parameters}
    watched = {"embedding": "embedding.weight", "0": "blocks.0.norm_1.weight", "1": "blocks.1.norm_1.weight"}
    return {key: rates[f"backbone.{name}"] for key, name in watched.items()} | {"head": rates["head.score.weight"]}


@pytest.mark.parametrize(
    ("progress", "unfrozen"),
    [(0, "head"), (0.24, "head"), (0.26, "head 1"), (0.51, "head 1 0"), (0.74, "head 1 0"), (0.76, "head 1 0 embedding")],
)
def test_gradual_unfreezing_goes_from_the_top_down(progress: float, unfrozen: str) -> None:
    """With two blocks: the head, then one more level each quarter of the run, the embedding last."""
    assert {name for name, rate in rate_factors("gradual", progress).items() if rate} == set(unfrozen.split())


def test_learning_rates_fall_by_depth() -> None:
    """The head has the highest; each level has a fraction of the one above it."""
    found = rate_factors("discriminative", 0.5, layer_decay=0.5)
    assert found == pytest.approx({"head": 2, "1": 1, "0": 0.5, "embedding": 0.25})
    both = rate_factors("gradual+discriminative", 0.6, layer_decay=0.5)
    assert both == pytest.approx({"head": 2, "1": 1, "0": 0.5, "embedding": 0})


def test_the_probe_comes_first() -> None:
    """At first only the head trains, at a probe's learning rate; then everything, at that of full fine-tuning."""
    probe = make_scheme("probe").rate_factors["head"]
    assert rate_factors("lp-ft", 0.1) == pytest.approx({"head": probe, "1": 0, "0": 0, "embedding": 0})
    assert rate_factors("lp-ft", 0.9) == pytest.approx({"head": 1, "1": 1, "0": 1, "embedding": 1})
    assert rate_factors("lp-ft", 0.4, probe_fraction=0.5)["1"] == 0
    backbone = make_backbone()
    model = Model(backbone, fresh_head(ClassificationHeadConfig(classes=2), backbone, 0), causal=False)
    mix = next(
        group for group in apply_scheme(model, make_scheme("lp-ft+scalar-mix")) if "backbone.scalar_mix.gamma" in group.parameters
    )
    assert mix.rate_factor * mix.schedule(0.1) == make_scheme("scalar-mix").rate_factors["scalar-mix"]


def test_unfreezing_by_literal_numbers() -> None:
    """Pure functions of the progress."""
    assert [frozen_until(0.5, 0.2)(p) for p in (0.4, 0.5, 0.6, 0.9)] == pytest.approx([0, 0, 0.5, 1])
    assert [frozen_until(0.5)(p) for p in (0.49, 0.5)] == [0, 1]
    assert [at_first(0.3, 10)(p) for p in (0.2, 0.3)] == [10, 1]
    assert [unfrozen_at(level, 2) for level in (3, 2, 1, 0)] == [0, 0.25, 0.5, 0.75]
    assert [make_scheme(name).unfreezing.complete_at(2) for name in ("full", "lp-ft", "gradual")] == [0, 0.2, 0.75]


def test_bitfit_needs_biases() -> None:
    """A backbone without them is refused."""
    backbone = make_backbone(bias=False)
    model = Model(backbone, fresh_head(ClassificationHeadConfig(classes=2), backbone, 0), causal=False)
    with pytest.raises(ConfigError, match="bitfit trains biases, but this backbone has none"):
        apply_scheme(model, make_scheme("bitfit"))
