"""Every place where a name that was read from a file becomes a path: none leads out of its folder, links included.

The rest are files of fixed names in a stranger's folder, which may be links: ``helpers/hostile.py`` has them ("is a link out", "is
a pipe"). Files that task manifests, recipes and settings name are the user's own choice, like arguments of a command.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from warmstart.commands.recipe import read_recipe
from warmstart.errors import DataError, WarmstartError
from warmstart.experiment.store import SweepContext, find_result, result_file
from warmstart.experiment.trial import Method, Trial
from warmstart.finetuning.config import FineTuneConfig
from warmstart.interop.companions import read_pooling
from warmstart.interop.folder import find_folder, shards_of
from warmstart.system.storage import inside, names_a_folder
from warmstart.tasks.load import load_named_tasks

NAMES = ["../x", "..", "/x", "a/../../x", "a/b", "", ".", "a\0b", "x\nb", "/dev/zero"]


def shard(name: str, folder: Path) -> None:
    """An index of shards."""
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": f"{name}.safetensors"}}))
    if name == "a/b":
        raise DataError("folders within the folder are allowed")
    shards_of(folder)


def pooling(name: str, folder: Path) -> None:
    """The list of modules of sentence-transformers."""
    (folder / "modules.json").write_text(json.dumps([{"type": "sentence_transformers.models.Pooling", "path": f"../{name}"}]))
    read_pooling(folder)


def task_name(name: str, folder: Path) -> None:
    """A race on several tasks makes a folder of each task's name."""
    (folder / "rows.csv").write_text("text,label\n" + "".join(f"text {i},{i % 2}\n" for i in range(8)))
    (folder / "task.yaml").write_text(json.dumps({"name": name, "train": "rows.csv", "test": 0.5}))
    load_named_tasks([folder])


def step(name: str, folder: Path) -> None:
    """A recipe makes a folder of each step's name."""
    (folder / "recipe.yaml").write_text(json.dumps({"title": "t", "steps": {name: {"command": "doctor", "model": "x"}}}))
    read_recipe(str(folder / "recipe.yaml"), folder, None)


def hub_name(name: str, folder: Path) -> None:
    """A model of the hub is kept in a folder of its name."""
    find_folder(f"hf:{folder / 'none'}/{name}", folder)


def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    """With one of our own errors, before anything is read or written there."""
    for reader in (shard, pooling, task_name, step, hub_name):
        for number, name in enumerate(NAMES):
            folder = tmp_path / reader.__name__ / str(number)
            folder.mkdir(parents=True)
            try:
                reader(name, folder)
            except WarmstartError:
                continue
            raise AssertionError(f"{reader.__name__} takes {name!r}")


def test_results_of_trials_are_named_by_hashes(tmp_path: Path) -> None:
    """Whatever a method or a backbone is called, its results lie in the folder of the trials; others' files there are data."""
    for name in NAMES:
        context = SweepContext(task="task.yaml", digest=name, folder=str(tmp_path), tune=FineTuneConfig())
        trial = Trial(method=Method(name=name, family="baseline", backbone=name, backbone_digest=name), seed=0)
        file = result_file(trial, context)
        assert file.parent == tmp_path
        file.write_text('{"trial": ' + "[" * 100_000)
        assert find_result(trial, context) is None


def test_a_link_to_itself_and_a_folder_are_no_files(tmp_path: Path) -> None:
    """Each is refused with the reason."""
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ValueError, match="a link to itself"):
        inside(tmp_path, "loop")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match="must be an ordinary file"):
        inside(tmp_path, "folder")


def test_ordinary_names_of_tasks_are_folders() -> None:
    """Spaces and letters of any script are."""
    assert all(map(names_a_folder, ["AG News", "sst-2", "tâche 1", "v1.0"]))
