"""Every measured table of the documents, in the order in which they are measured."""

from __future__ import annotations

from benchmarks.encoders import encoders_table
from benchmarks.few_labels import few_labels_table
from benchmarks.render import (
    Row,
    curve,
    language_models,
    printed,
    races,
    reproduction,
    thresholds,
    timing,
)
from benchmarks.simulations import SIMULATIONS
from benchmarks.table import Table

BENCHMARKS, PERFORMANCE = "results/benchmarks.md", "results/performance.md"
ADAPTATION = "results/adaptation-results.md"
STUDIES = "results/study-results.md"
ALTEGRAD, ECE1786, NAACL2019, CS224N = (f"results/{name}.md" for name in ("altegrad", "ece1786", "naacl2019", "cs224n"))
SIMULATED, LABELLING = "results/simulations.md", "results/labelling.md"
TREC = "warmstart race recipes/tasks/trec.yaml --backbones runs/wikitext-2 --drop-leaks"
FEW = "full lp-ft discriminative lp-ft+discriminative gradual lora houlsby lm-loss"
MINILM = "warmstart race recipes/tasks/trec.yaml --backbones runs/minilm --batch 16 --drop-leaks"
FEW_LABELS = {
    100: ("trec", "sst2", "ag_news", "mr", "emotion", "cls_books", "sentiment", "banking77", "r8", "r52"),
    50: ("trec", "sst2", "ag_news", "mr", "emotion", "cls_books", "sentiment", "r8"),
    500: ("trec", "sst2", "ag_news", "mr", "emotion", "cls_books"),
}  # fmt: skip
"""number of labels -> the labelled sets that were measured with it so far"""
FINE_TUNED = {100: ("trec", "sst2", "ag_news", "mr", "emotion"), 50: ("trec", "sst2", "mr")}
"""those of them on which both backbones were fine-tuned, too"""
TIMINGS = {
    "training": 12, "compilation": 5, "limit": 4, "profile": 1, "sizes": 3, "threads": 5, "finetuning": 5, "inference": 3,
    "scoring": 5, "generation": 2, "corpus": 5, "corpora": 6, "startup": 1, "convergence": 30,
    "recipe": 30, "levers": 13, "mask_rate": 10, "race_time": 6, "gpu": 0, "serving": 5,
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
            f"{TREC} --labels 500 --selection none --schemes full lp-ft+discriminative gradual lora --out runs/tables/trec-500",
        ),
        races,
        needs=("wikitext-2",),
        minutes=55,
    ),
    Table(
        "trec-all",
        (BENCHMARKS,),
        (f"{TREC} --epochs 3 --schemes full lp-ft+discriminative lora --learning-rates 5e-4 1.5e-3 --out runs/tables/trec-all",),
        races,
        needs=("wikitext-2",),
        minutes=20,
    ),
    Table(
        "trec-curve",
        (BENCHMARKS,),
        (
            "warmstart race recipes/tasks/trec.yaml --backbones runs/wikitext-2 --drop-leaks --schemes lp-ft+discriminative "
            "--labels 32 64 128 256 512 --learning-rates 5e-4 --target 0.9 --out runs/tables/trec-curve",
        ),
        curve,
        needs=("wikitext-2",),
        minutes=12,
    ),
    Table(
        "trec-minilm",
        (BENCHMARKS,),
        (
            f"{MINILM} --labels 100 --schemes full lp-ft discriminative lora houlsby --out runs/tables/trec-minilm-100",
            f"{MINILM} --epochs 3 --schemes full lora --learning-rates 3e-4 --no-scratch --out runs/tables/trec-minilm-all",
        ),
        races,
        needs=("minilm",),
        minutes=45,
    ),
    encoders_table(BENCHMARKS, minutes=40),
    few_labels_table(FEW_LABELS, FINE_TUNED, BENCHMARKS, minutes=120),
    Table("stacking", (SIMULATED,), ("python -m benchmarks.stacking",), timing, minutes=10),
    Table("windows", (ADAPTATION,), ("python -m benchmarks.windows",), timing, needs=("minilm",), minutes=10),
    Table("domain", (ADAPTATION,), ("python -m benchmarks.domain",), timing, needs=("wikitext-2",), minutes=60),
    Table("labelling", (LABELLING,), ("python -m benchmarks.labelling",), timing, needs=("minilm",), minutes=20),
    Table(
        "calibration",
        (ADAPTATION,),
        (
            "warmstart adapt runs/wikitext-2 recipes/tasks/trec.yaml --scheme lp-ft+discriminative --epochs 3 --seeds 1 "
            "--no-scratch --no-baselines --calibration-fraction 0.5 --drop-leaks --out runs/tables/calibration",
        ),
        thresholds,
        needs=("wikitext-2",),
        minutes=2,
    ),
    Table(
        "continual",
        (ADAPTATION,),
        (
            "warmstart continual runs/wikitext-2 recipes/tasks/trec.yaml recipes/tasks/mr.yaml --labels 500 --seeds 5 "
            "--strategies none --text $WARMSTART_DATA/wikitext-2/valid.txt.gz --out runs/tables/continual",
        ),
        printed,
        needs=("wikitext-2",),
        minutes=12,
    ),
    Table(
        "joint",
        (ADAPTATION,),
        (
            "warmstart continual runs/wikitext-2 recipes/tasks/trec.yaml recipes/tasks/mr.yaml --labels 500 --seeds 5 "
            "--strategies joint alone --out runs/tables/joint",
        ),
        printed,
        needs=("wikitext-2",),
        minutes=8,
    ),
    Table(
        "tagging",
        (ADAPTATION,),
        ("warmstart adapt runs/wikitext-2 recipes/tasks/ewt.yaml --epochs 4 --out runs/tables/tagging",),
        printed,
        needs=("wikitext-2",),
        minutes=15,
    ),
    Table(
        "probe",
        (STUDIES,),
        (
            "warmstart study probe runs/wikitext-2 --tasks $WARMSTART_DATA/ud_probing/ "
            "--words $WARMSTART_DATA/ud_english_ewt/en_ewt-ud-dev.conllu.gz --out runs/tables/probe",
        ),
        printed,
        needs=("wikitext-2",),
        minutes=15,
    ),
    Table(
        "ece1786",
        (ECE1786,),
        ("warmstart recipe recipes/ece1786.yaml --out runs/tables/ece1786",),
        reproduction(
            "the assignment",
            Row("toy grammar: last training loss, nats", "about 0.6, from 10.8", "small", "last_loss"),
            Row("the book on the Mint: held-out loss, nats", "", "larger", "loss"),
            Row("film reviews, pretrained", "0.70, one split", "reviews", "pretrained", "864 + 96"),
            Row("film reviews, from scratch", "", "reviews", "from scratch", "864 + 96"),
            Row("film reviews, TF-IDF + logistic regression", "", "reviews", "TF-IDF + logistic regression", "864 + 96"),
        ),
        minutes=6,
    ),
    Table(
        "birthplace",
        (CS224N,),
        ("warmstart recipe recipes/birthplace.yaml --length laptop --out runs/tables/birthplace",),
        reproduction(
            "the course, exact match",
            Row("always the most common answer", "5.0%", "answers", "most common answer"),
            Row("from scratch", "about 2%, 75 epochs", "answers", "from scratch", "1,800 + 200"),
            Row("after span corruption", "24 to 26%, 650 + 10 epochs", "answers", "pretrained", "1,800 + 200"),
        ),
        minutes=45,
    ),
    Table(
        "birthplace-evening",
        (CS224N,),
        ("warmstart recipe recipes/birthplace.yaml --length evening --out runs/tables/birthplace-evening",),
        reproduction(
            "the course, exact match",
            Row("learned positions, 110 epochs", "24 to 26%, 650 + 10 epochs", "answers", "pretrained", "1,800 + 200"),
        ),
        minutes=120,
    ),
    Table(
        "birthplace-rotary",
        (CS224N,),
        ("warmstart recipe recipes/birthplace_rotary.yaml --out runs/tables/birthplace-rotary",),
        reproduction(
            "the course, exact match",
            Row("rotary positions, from scratch", "", "answers", "from scratch", "1,800 + 200"),
            Row("rotary positions, 75 epochs of span corruption", "", "answers", "pretrained", "1,800 + 200"),
            Row("rotary positions, 180 epochs", "33%, 650 + 10 epochs", "answers_longer", "pretrained", "1,800 + 200"),
        ),
        minutes=200,
    ),
    Table(
        "naacl2019",
        (NAACL2019,),
        ("warmstart recipe recipes/naacl2019.yaml --length laptop --out runs/tables/naacl2019",),
        reproduction(
            "the tutorial, 8 V100, 15 h",
            Row("causal: word-level perplexity", "29, WikiText-103", "causal", "word_perplexity"),
            Row("masked: perplexity of a masked token", "8.3", "masked", "perplexity"),
            Row("TREC-6, from the masked one", "96.4%", "trec_masked", "pretrained", "4,907 + 545"),
            Row("TREC-6, from the causal one", "", "trec", "pretrained", "4,907 + 545"),
            Row("TREC-6, from scratch", "", "trec", "from scratch", "4,907 + 545"),
            Row("TREC-6, TF-IDF + logistic regression", "", "trec", "TF-IDF + logistic regression", "4,907 + 545"),
        ),
        minutes=75,
    ),
    Table(
        "altegrad",
        (ALTEGRAD,),
        ("warmstart recipe recipes/altegrad.yaml --out runs/tables/altegrad",),
        reproduction(
            "the lab, best validation accuracy",
            Row("pretrained", "0.79 to 0.80", "tuned", "pretrained", "1,600 + 400"),
            Row("from scratch", "0.75 to 0.78", "tuned", "from scratch", "1,600 + 400"),
            Row("frozen", "0.69 to 0.73", "frozen", "pretrained", "1,600 + 400"),
            Row("improved: masked, mean pooling, `lp-ft`, Muon", "", "better", "pretrained", "1,600 + 400"),
            Row("TF-IDF + logistic regression", "", "tuned", "TF-IDF + logistic regression", "1,600 + 400"),
            Row("language model: perplexity per token", "", "lm", "perplexity"),
        ),
        minutes=120,
    ),
    *(
        Table(
            name,
            (ALTEGRAD,),
            (f"warmstart recipe recipes/french_reviews.yaml {length}--out runs/tables/{name}",),
            reproduction(
                "the lab, from its own sentences",
                Row("pretrained on reviews", "0.79 to 0.80", "tuned", "pretrained", "1,600 + 400"),
                Row("from scratch", "0.75 to 0.78", "tuned", "from scratch", "1,600 + 400"),
                Row("TF-IDF + logistic regression", "", "tuned", "TF-IDF + logistic regression", "1,600 + 400"),
                Row("perplexity of a masked token", "", "lm", "perplexity"),
            ),
            minutes=minutes,
        )
        for name, length, minutes in (("french-reviews", "", 40), ("french-reviews-gpu", "--length gpu ", 10))
    ),
    Table(
        "french-reviews-e5",
        (ALTEGRAD,),
        (
            "warmstart race recipes/tasks/cls_books_text.yaml --backbones e5 --schemes probe --no-scratch --drop-leaks --seeds 3 "
            "--out runs/tables/french-reviews-e5",
        ),
        reproduction(
            "the lab, from its own sentences",
            Row("stack of frozen e5 and words", "0.79 to 0.80", "1", "stack", "1,600 + 400"),
            Row("frozen e5, a learned mix of its layers", "", "1", "scalar-mix", "1,600 + 400"),
            Row("frozen e5, its last layer", "", "1", "probe", "1,600 + 400"),
            Row("TF-IDF + logistic regression", "", "1", "TF-IDF + logistic regression", "1,600 + 400"),
        ),
        minutes=15,
    ),
    Table(
        "questions",
        (NAACL2019,),
        ("warmstart recipe recipes/questions.yaml --out runs/tables/questions",),
        reproduction(
            "the tutorial, 8 V100, 15 h",
            Row("TREC-6, pretrained on questions", "96.4%", "trec", "pretrained", "4,907 + 545"),
            Row("TREC-6, from scratch", "", "trec", "from scratch", "4,907 + 545"),
            Row("TREC-6, TF-IDF + logistic regression", "", "trec", "TF-IDF + logistic regression", "4,907 + 545"),
            Row("perplexity per token", "", "lm", "perplexity"),
        ),
        minutes=60,
    ),
    Table(
        "film-reviews",
        (ECE1786,),
        ("warmstart recipe recipes/film_reviews.yaml --length gpu --out runs/tables/film-reviews",),
        reproduction(
            "the assignment",
            Row("film reviews, after reading film reviews", "0.70, one split", "reviews", "pretrained", "864 + 96"),
            Row("film reviews, from scratch", "", "reviews", "from scratch", "864 + 96"),
            Row("film reviews, TF-IDF + logistic regression", "", "reviews", "TF-IDF + logistic regression", "864 + 96"),
            Row("perplexity per token", "", "lm", "perplexity"),
        ),
        minutes=10,
    ),
    Table(
        "film-reviews-encoders",
        (ECE1786,),
        tuple(
            f"warmstart adapt {model} recipes/tasks/sst2_first.yaml --epochs {epochs} --learning-rate {rate} --no-scratch "
            f"--out runs/tables/film-reviews-{model}"
            for model, epochs, rate in (("minilm", 4, "1e-4"), ("e5", 4, "1e-4"), ("smollm2", 2, "5e-5"))
        ),
        reproduction(
            "the assignment, GPT-2",
            Row("film reviews, MiniLM", "0.83 to 0.88", "1", "pretrained", "864 + 96"),
            Row("film reviews, e5", "0.83 to 0.88", "2", "pretrained", "864 + 96"),
            Row("film reviews, SmolLM2-135M", "0.83 to 0.88", "3", "pretrained", "864 + 96"),
            Row("film reviews, TF-IDF + logistic regression", "", "1", "TF-IDF + logistic regression", "864 + 96"),
        ),
        minutes=15,
    ),
    Table(
        "pairs",
        (STUDIES,),
        ("warmstart evaluate runs/wikitext-2 --pairs $WARMSTART_DATA/blimp/ --out runs/tables/pairs",),
        printed,
        needs=("wikitext-2",),
        minutes=3,
    ),
    Table(
        "neurons",
        (STUDIES,),
        (
            "warmstart study neurons runs/wikitext-2 --text $WARMSTART_DATA/ud_english_ewt/en_ewt-ud-dev.conllu.gz "
            "--out runs/tables/neurons",
        ),
        printed,
        needs=("wikitext-2",),
        minutes=1,
    ),
    Table(
        "label-names",
        ("results/baselines.md",),
        ("python -m benchmarks.label_names",),
        timing,
        needs=("minilm",),
        minutes=10,
    ),
    Table(
        "unknown-classes",
        ("results/baselines.md",),
        ("python -m benchmarks.unknown_classes",),
        timing,
        needs=("minilm",),
        minutes=10,
    ),
    Table("columns", ("results/other.md",), ("python -m benchmarks.columns",), timing, minutes=15),
    Table("shares", ("results/other.md",), ("python -m benchmarks.shares",), timing, minutes=15),
    Table("votes", ("results/other.md",), ("python -m benchmarks.votes",), timing, minutes=60),
    *SIMULATIONS,
    Table("page", ("results/page.md",), ("python -m benchmarks.page",), timing, minutes=6),
    *(Table(name, (PERFORMANCE,), (f"python -m benchmarks.{name}",), timing, minutes=minutes) for name, minutes in TIMINGS.items()),
)
