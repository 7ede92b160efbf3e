"""A stack for other programs: each network as an ONNX graph, each baseline as words and numbers, and a script that reads both.

    config.json      labels, temperature, and the members with theirs
    predict.py       needs numpy and safetensors; onnxruntime and tokenizers if there is a network; not warmstart
    members/1/       model.onnx, tokenizer.json, config.json        a network
    members/2/       baseline.json, arrays.safetensors              a baseline
    backbones/1/     as a network, for the vectors of baselines     once for all of them

Before the folder takes its place, the script predicts some texts in a fresh process in which warmstart cannot be imported.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from warmstart.errors import ModelError
from warmstart.interop import portable
from warmstart.interop.onnx import PORTABLE_TEXTS, TOLERANCE, largest_gap, to_onnx
from warmstart.model.bundle import Bundle
from warmstart.model.folder import write_files
from warmstart.model.selftest import SELFTEST_TEXTS
from warmstart.model.stack import Stack
from warmstart.model.stack_files import member_contents, member_entry
from warmstart.model.stack_selftest import member_columns
from warmstart.system.outputs import free_folder
from warmstart.system.processes import run_python
from warmstart.system.storage import atomic_folder
from warmstart.tasks.predict import raw_predictions
from warmstart.tasks.thresholds import thresholds_of

PROBES = (*PORTABLE_TEXTS, " ".join(SELFTEST_TEXTS * 30))
"""texts that are predicted to compare; the last is longer than most networks read"""
_RUN = """
import json
sys.modules["warmstart"] = None
sys.path.insert(0, sys.argv[1])
import predict
json.dump(predict.probabilities(json.load(sys.stdin)).tolist(), sys.stdout)
"""


def stack_to_onnx(stack: Stack, folder: str | Path) -> float:
    """Write the folder, run its script, and compare; returns the largest difference of a prediction.

    Raises ``ModelError``, and writes nothing, if it exceeds ``TOLERANCE`` or the script fails.
    """
    with atomic_folder(free_folder(folder)) as aside:
        members, columns = [], member_columns(stack)
        for number, member in enumerate(stack.members, 1):
            place = aside / "members" / str(number)
            if isinstance(member.model, Bundle):
                to_onnx(member.model, place)
            else:
                place.mkdir(parents=True)
                write_files(place, member_contents(member, columns[number - 1]))
            members.append(member_entry(member) | {"backbone": stack.backbone_of(member)})
        for number, backbone in enumerate(stack.backbones, 1):
            to_onnx(backbone, aside / "backbones" / str(number))
        temperature = stack.calibration.temperature if stack.calibration else 1.0
        settings = {"type": stack.type, "labels": list(stack.labels), "temperature": temperature, "members": members}
        settings["thresholds"] = thresholds_of(stack)
        script = Path(portable.__file__).read_bytes()
        write_files(aside, {"config.json": json.dumps(settings, indent=1, ensure_ascii=False).encode(), "predict.py": script})
        return _compared(stack, aside)


def _compared(stack: Stack, folder: Path) -> float:
    """The largest difference of a prediction of the script in ``folder`` from the stack's own."""
    run = run_python(_RUN, str(folder.resolve()), text=json.dumps(PROBES))
    if run.returncode:
        reason = run.stderr.strip().splitlines()[-1] if run.stderr.strip() else f"exit code {run.returncode}"
        raise ModelError(f"predict.py of the exported stack must run without warmstart, but failed: {reason}")
    expected, exported = raw_predictions(stack, PROBES), np.array(json.loads(run.stdout))
    gap = largest_gap(expected, exported)
    if not gap <= TOLERANCE:
        raise ModelError(
            f"the exported stack must predict what the saved one predicts, but differs by {gap:.2g}; export its members one by one"
        )
    return gap
