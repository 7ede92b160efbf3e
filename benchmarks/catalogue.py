"""Every measured table of the documents, in the order in which one night measures them."""

from __future__ import annotations

from benchmarks.render import curve, language_models, races, timing
from benchmarks.table import Table

BENCHMARKS, PERFORMANCE = "docs/benchmarks.md", "docs/performance.md"
TREC = "warmstart race recipes/tasks/trec.yaml --backbones runs/wikitext-2 --drop-leaks"
SST = "warmstart race recipes/tasks/sst2.yaml --backbones runs/wikitext-2 --drop-leaks"
NEWS = "warmstart race recipes/tasks/ag_news.yaml --backbones runs/wikitext-2 --drop-leaks"
FEW = "full lp-ft lp-ft+discriminative gradual lora houlsby lm-loss"
MINILM = "warmstart race recipes/tasks/trec.yaml --backbones runs/minilm --batch 16 --drop-leaks"
TIMINGS = {
    "training": 5, "compilation": 5, "limit": 1, "profile": 1, "sizes": 3, "threads": 2, "finetuning": 5, "inference": 3,
    "scoring": 5, "generation": 2, "corpus": 3, "startup": 1, "fewshot": 45, "convergence": 30, "recipe": 30, "mask_rate": 10,
}  # fmt: skip
"""speed and memory: module -> minutes"""

TABLES = (
    Table("minilm", (), ("warmstart import $MINILM --out runs/minilm",), lambda _: "", minutes=1),
    Table(
        "wikitext-2",
        (BENCHMARKS,),
        (
            "warmstart pretrain $WARMSTART_DATA/wikitext-2/train.txt.gz --held-out $WARMSTART_DATA/wikitext-2/valid.txt.gz "
            "--out runs/wikitext-2 --tokens 4000000 --tokenizer.vocab-size 8192",
            "warmstart evaluate runs/wikitext-2 $WARMSTART_DATA/wikitext-2/test.txt.gz",
        ),
        language_models(validation=0, test=1),
        minutes=16,
    ),
    Table(
        "trec",
        (BENCHMARKS,),
        (
            f"{TREC} --labels 100 --schemes {FEW} --out runs/tables/trec-100",
            f"{TREC} --labels 500 --schemes {FEW} --out runs/tables/trec-500",
            f"{TREC} --epochs 3 --schemes full lp-ft+discriminative lora --learning-rates 5e-4 1.5e-3 --out runs/tables/trec-all",
        ),
        races,
        needs=("wikitext-2",),
        minutes=60,
    ),
    Table(
        "trec-curve",
        (BENCHMARKS,),
        (
            "warmstart curve recipes/tasks/trec.yaml --backbones runs/wikitext-2 --drop-leaks --schemes lp-ft+discriminative "
            "--labels 32 64 128 256 512 --learning-rates 5e-4 --target 0.9 --out runs/tables/trec-curve",
        ),
        curve,
        needs=("wikitext-2",),
        minutes=12,
    ),
    Table(
        "sst2",
        (BENCHMARKS,),
        (
            f"{SST} --labels 100 --schemes full lora --learning-rates 5e-4 1.5e-3 --out runs/tables/sst2-100",
            f"{SST} --labels 500 --schemes full lora --learning-rates 5e-4 1.5e-3 --out runs/tables/sst2-500",
        ),
        races,
        needs=("wikitext-2",),
        minutes=25,
    ),
    Table(
        "ag-news",
        (BENCHMARKS,),
        (
            f"{NEWS} --labels 100 --schemes full lora --learning-rates 5e-4 --out runs/tables/ag-news-100",
            f"{NEWS} --labels 500 --schemes full lora --learning-rates 5e-4 --out runs/tables/ag-news-500",
        ),
        races,
        needs=("wikitext-2",),
        minutes=60,
    ),
    Table(
        "trec-minilm",
        (BENCHMARKS,),
        (
            f"{MINILM} --labels 100 --schemes full lp-ft lora --learning-rates 1e-4 3e-4 1e-3 --out runs/tables/trec-minilm-100",
            f"{MINILM} --epochs 3 --schemes full lora --learning-rates 1e-4 3e-4 --no-scratch --out runs/tables/trec-minilm-all",
        ),
        races,
        needs=("minilm",),
        minutes=45,
    ),
    *(Table(name, (PERFORMANCE,), (f"python -m benchmarks.{name}",), timing, minutes=minutes) for name, minutes in TIMINGS.items()),
)
