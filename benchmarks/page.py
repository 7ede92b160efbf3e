"""A model as one HTML file: its size, how fast it is ready and answers, and whether it says what Python says.

Two models that label questions (TREC), one of the default size with its own tokenizer and one on MiniLM, and the language model
below the first. Each is exported and opened in Chromium from the disk. A text is a question of 8 to 12 words; its time is that
from the click until the prediction stands on the page, the median of 40. Labels and probabilities are compared on the test
questions with the model before rounding, ids on 10,000 texts. ``MINILM`` is the folder of MiniLM in the Hugging Face format.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.harness import show, table

from warmstart.app.one_file.document import joined_scripts, read_page
from warmstart.data.read import read_documents
from warmstart.data.source import Source
from warmstart.interop.load import load_model
from warmstart.stats.formatting import file_size, percent
from warmstart.tasks.load import load_task
from warmstart.tasks.predict import raw_predictions

DATA = Path(os.environ.get("WARMSTART_DATA", "../../shared/data"))
TREC = "recipes/tasks/trec.yaml"
ADAPTED = f"{TREC} --labels 300 --selection none --epochs 4 --seeds 1 --no-scratch --no-baselines"
MODELS = {
    "lm": "pretrain {data}/wikitext-2/train.txt.gz --held-out {data}/wikitext-2/valid.txt.gz --tokens 300000 "
    "--tokenizer.vocab-size 8192",
    "minilm": "import {minilm}",
    "default": f"adapt {{runs}}/lm {ADAPTED} --learning-rate 5e-4",
    "MiniLM": f"adapt {{runs}}/minilm {ADAPTED} --learning-rate 2e-4",
}
"""name of a model -> the command that makes it"""
SHOWN = {"default": "questions, default backbone", "MiniLM": "questions, MiniLM", "lm": "language model"}
TIMES, IDS = 40, 10_000
_CLICK = """([text, button, done]) => new Promise((tell) => {
    const status = document.querySelector(`${button} .status`);
    const began = performance.now();
    new MutationObserver((_, watching) => {
        if (!status.textContent.startsWith(done)) return;
        watching.disconnect();
        requestAnimationFrame(() => tell(performance.now() - began));
    }).observe(status, { childList: true, characterData: true, subtree: true });
    document.querySelector(`${button} textarea`).value = text;
    document.querySelector(`${button} [type=submit]`).click();
})"""
_BARE = """async ({ script, facts, weights }) => {
    for (const [id, text] of [["facts", facts], ["weights", weights]]) {
        const part = document.createElement("script");
        Object.assign(part, { id, type: "text/plain", textContent: text });
        document.body.append(part);
    }
    window.model = await new Function(`${script}; return module_api.ready`)();
}"""


def made(runs: Path) -> None:
    """All models, each by its command."""
    places = {"runs": runs, "data": DATA, "minilm": os.environ.get("MINILM", "minilm")}
    for name, command in MODELS.items():
        line = command.format(**places).split()
        subprocess.run([sys.executable, "-m", "warmstart", *line, "--out", str(runs / name)], check=True, stdout=sys.stderr)
        if name in SHOWN:
            line = ["export", str(runs / name), "--to", "page", "--out", str(runs / f"{name}.html")]
            subprocess.run([sys.executable, "-m", "warmstart", *line], check=True, stdout=sys.stderr)


def real_texts() -> list[str]:
    """10,000 texts: paragraphs of an encyclopaedia, and tweets."""
    places = (DATA / "wikitext-2" / "train.txt.gz", DATA / "tweeteval" / "unlabeled_tweets.txt.xz")
    lines = (read_documents(Source(path=str(place), document="line")) for place in places)
    return [text for one in lines for _, text in zip(range(IDS // 2), one, strict=False)]


def row(browser: Any, runs: Path, name: str) -> tuple[str, ...]:
    """One model's page."""
    file, bundle = runs / f"{name}.html", load_model(str(runs / name))
    parameters = sum(parameter.numel() for parameter in bundle.model.parameters())
    page = browser.new_page()
    began = time.perf_counter()
    page.goto(file.resolve().as_uri())
    if bundle.labels:
        test = [str(text) for text in load_task(TREC).test.texts]
        short = [text for text in test if 8 <= len(text.split()) <= 12][:TIMES]
        page.evaluate(_CLICK, [short[0], "#classify", "1 done"])
        ready = time.perf_counter() - began
        spent = [page.evaluate(_CLICK, [text, "#classify", "1 done"]) for text in short]
        speed = f"{statistics.median(spent):.0f} ms a text"
    else:
        test, tokens = [], 60
        page.fill("#write-temperature", "0")
        page.evaluate(_CLICK, ["The", "#write", "1 tokens"])
        ready = time.perf_counter() - began
        page.wait_for_selector("#write [type=submit]:enabled")
        speed = f"{page.evaluate(_CLICK, ['The', '#write', f'{tokens} tokens']) / tokens:.0f} ms a token"
    page.close()
    same, gap = compared(browser, file, bundle, test) if test else ("", "")
    ids = f"{same_ids(browser, file, bundle):,} of {IDS:,}"
    size = file_size(file.stat().st_size)
    return SHOWN[name], f"{parameters / 1e6:.1f} M", size, f"{ready:.1f} s", speed, same, gap, ids


def model_in(browser: Any, file: Path) -> Any:
    """A page in which ``model`` is that of the file, without its panels and its policy."""
    contents, page = read_page(file), browser.new_page()
    packed = base64.b64encode(contents.weights).decode()
    page.evaluate(_BARE, {"script": joined_scripts("api.js"), "facts": json.dumps(contents.facts), "weights": packed})
    return page


def compared(browser: Any, file: Path, bundle: Any, texts: list[str]) -> tuple[str, str]:
    """The texts that get Python's label, and the largest distance of a probability."""
    page = model_in(browser, file)
    found = np.array(page.evaluate("(texts) => texts.map((text) => window.model.probabilities(text))", texts))
    wanted = raw_predictions(bundle, texts)
    page.close()
    equal = int((found.argmax(axis=1) == wanted.argmax(axis=1)).sum())
    return f"{equal} of {len(texts)}", percent(float(np.abs(found - wanted).max()))


def same_ids(browser: Any, file: Path, bundle: Any) -> int:
    """The texts of which the page gives exactly Python's ids."""
    texts, page = real_texts(), model_in(browser, file)
    found = page.evaluate("(texts) => texts.map((text) => window.model.tokenizer.encode(text))", texts)
    page.close()
    return sum(one == two for one, two in zip(found, bundle.tokenizer.encode(texts), strict=True))


def run() -> str:
    """Every model's page, measured one after the other."""
    from playwright.sync_api import sync_playwright

    header = (
        "model",
        "parameters",
        "file",
        "first answer after",
        "speed",
        "labels as Python's",
        "probability off by",
        "ids as Python's",
    )
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    runs = Path(tempfile.mkdtemp(prefix="benchmark"))
    made(runs)
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        rows = [row(browser, runs, name) for name in SHOWN]
        browser.close()
    return table(header, rows)


if __name__ == "__main__":
    show(run)
