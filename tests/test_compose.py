"""The names of schemes: what they mean together, what is refused, and when parts wake."""

from __future__ import annotations

import itertools

import pytest

from conftest import make_backbone
from warmstart.errors import ConfigError
from warmstart.heads import ClassifyHeadConfig
from warmstart.inserts import AdapterConfig, LoraConfig, MixConfig
from warmstart.model import Model, fresh_head
from warmstart.schemes import SCHEMES, Scheme, SchemeOptions, apply_scheme, make_scheme, settled
from warmstart.schemes.course import slows, top_down, wakes

REFUSED = {
    "full+probe": "full and probe both settle the same (what trains); name one of them",
    "full+lora": "full trains every weight of the backbone, and leaves nothing for lora; drop one",
    "bitfit+full": "full trains every weight of the backbone, and leaves nothing for bitfit; drop one",
    "probe+gradual": "probe freezes the backbone, and leaves nothing for gradual; drop one",
    "lm-loss+probe": "probe freezes the backbone, and leaves nothing for lm-loss",
    "gradual+lp-ft": "gradual and lp-ft both settle the same (when parts wake)",
    "houlsby+pfeiffer": "both settle the same (where adapters stand)",
    "lora+l2-sp": "l2-sp pulls a backbone that trains whole, and is nothing for lora; drop one",
    "lora+lora": "each scheme must be named once, but lora stands twice in lora+lora",
    "lora+mx": "unknown scheme 'mx'; did you mean 'mix'?",
    "": "unknown scheme ''",
    "full+": "unknown scheme ''",
}


@pytest.mark.parametrize("names", REFUSED)
def test_contradictions_are_refused(names: str) -> None:
    """The message names both words and says what to do."""
    with pytest.raises(ConfigError) as error:
        make_scheme(names)
    assert REFUSED[names] in str(error.value)


def test_order_does_not_matter_and_every_pair_is_decided() -> None:
    """Of any two names, both orders compose to the same training, or both are refused."""

    def verdict(names: str) -> object:
        try:
            made = make_scheme(names)
        except ConfigError:
            return None
        return made.model_copy(update={"inserts": frozenset(made.inserts), "trains": frozenset(made.trains)})

    for one, other in itertools.combinations(SCHEMES, 2):
        assert verdict(f"{one}+{other}") == verdict(f"{other}+{one}"), (one, other)


def test_what_goes_without_saying() -> None:
    """A word on how a backbone trains implies ``full``; ``mix`` alone implies ``probe``."""
    assert make_scheme("gradual") == make_scheme("full+gradual")
    assert make_scheme("mix") == make_scheme("probe+mix")
    assert make_scheme("mix+lm-loss").trains == ("all",)
    assert make_scheme("full") == Scheme(trains=("all",))
    assert make_scheme("dapt") == make_scheme("dapt+full") == Scheme(trains=("all",), continued=True)
    assert make_scheme("dapt+mix") == make_scheme("mix").model_copy(update={"continued": True})
    assert [name for name in SCHEMES if make_scheme(name).still] == ["probe", "mix"]


def test_options_reach_their_schemes() -> None:
    """Each option changes the scheme that its help names, and no other."""
    options = SchemeOptions(adapter_width=3, adapter_norms="no", lora_rank=2, lora_targets=("out",), lm_weight=0.1, pull=0.2)
    assert make_scheme("houlsby+lora+mix", options).inserts == (
        AdapterConfig(width=3),
        LoraConfig(rank=2, targets=("out",)),
        MixConfig(),
    )
    assert make_scheme("houlsby", options).trains == ()
    assert make_scheme("pfeiffer", SchemeOptions(adapter_norms="yes")).trains == ("norms",)
    assert make_scheme("lm-loss+l2-sp", options).lm_weight == 0.1
    assert make_scheme("l2-sp", options).pull == (0.2, 0.01)
    assert make_scheme("full", options) == make_scheme("full")


def courses(names: str, progress: float, **options: float) -> dict[str, float]:
    """Of one parameter a level: what its rate is multiplied by at a point of the run."""
    backbone = make_backbone()
    model = Model(backbone, fresh_head(ClassifyHeadConfig(classes=2), backbone, 0), causal=False)
    groups = apply_scheme(model, make_scheme(names, SchemeOptions.build(options)))
    rates = {name: group.rate * group.course(progress) for group in groups for name in group.parameters}
    watched = {"embedding": "embedding.weight", "0": "blocks.0.norm_1.weight", "1": "blocks.1.norm_1.weight"}
    return {key: rates[f"backbone.{name}"] for key, name in watched.items()} | {"head": rates["head.score.weight"]}


@pytest.mark.parametrize(
    ("progress", "awake"),
    [(0, "head"), (0.24, "head"), (0.26, "head 1"), (0.51, "head 1 0"), (0.74, "head 1 0"), (0.76, "head 1 0 embedding")],
)
def test_gradual_unfreezing_goes_from_the_top_down(progress: float, awake: str) -> None:
    """With two blocks: the head, then one level more each quarter of the run, the embedding last."""
    assert {name for name, rate in courses("gradual", progress).items() if rate} == set(awake.split())


def test_rates_fall_by_depth() -> None:
    """The head highest, each level below at the decay of the one above it."""
    found = courses("discriminative", 0.5, depth_decay=0.5)
    assert found == pytest.approx({"head": 2, "1": 1, "0": 0.5, "embedding": 0.25})
    both = courses("gradual+discriminative", 0.6, depth_decay=0.5)
    assert both == pytest.approx({"head": 2, "1": 1, "0": 0.5, "embedding": 0})


def test_the_probe_comes_first() -> None:
    """At first only the head trains, at a probe's rate; then all of it, at full fine-tuning's."""
    probe = make_scheme("probe").rates["head"]
    assert courses("lp-ft", 0.1) == pytest.approx({"head": probe, "1": 0, "0": 0, "embedding": 0})
    assert courses("lp-ft", 0.9) == pytest.approx({"head": 1, "1": 1, "0": 1, "embedding": 1})
    assert courses("lp-ft", 0.4, probe_share=0.5)["1"] == 0
    backbone = make_backbone()
    model = Model(backbone, fresh_head(ClassifyHeadConfig(classes=2), backbone, 0), causal=False)
    mix = next(group for group in apply_scheme(model, make_scheme("lp-ft+mix")) if "backbone.mix.gamma" in group.parameters)
    assert mix.rate * mix.course(0.1) == make_scheme("mix").rates["mix"]


def test_courses_by_literal_numbers() -> None:
    """Pure functions of how much of the run is spent."""
    assert [wakes(0.5, 0.2)(p) for p in (0.4, 0.5, 0.6, 0.9)] == pytest.approx([0, 0, 0.5, 1])
    assert [wakes(0.5)(p) for p in (0.49, 0.5)] == [0, 1]
    assert [slows(0.3, 10)(p) for p in (0.2, 0.3)] == [10, 1]
    assert [top_down(level, 2) for level in (3, 2, 1, 0)] == [0, 0.25, 0.5, 0.75]
    assert [settled(make_scheme(name), 2) for name in ("full", "lp-ft", "gradual")] == [0, 0.2, 0.75]


def test_bitfit_needs_biases() -> None:
    """A backbone without them is refused."""
    backbone = make_backbone(bias=False)
    model = Model(backbone, fresh_head(ClassifyHeadConfig(classes=2), backbone, 0), causal=False)
    with pytest.raises(ConfigError, match="bitfit trains biases, but this backbone has none"):
        apply_scheme(model, make_scheme("bitfit"))
