"""How studies say figures and names, all in the same way."""

from __future__ import annotations

from pathlib import Path


def around(value: float, low: float, high: float) -> str:
    """A figure with its interval."""
    return f"{value:.3f} ({low:.3f} to {high:.3f})"


def percent(mean: float, low: float, high: float) -> str:
    """A share with its interval."""
    return f"{100 * mean:.1f} % ({100 * low:.1f} to {100 * high:.1f})"


def points_of(mean: float, low: float, high: float) -> str:
    """A difference of shares with its interval."""
    return f"{100 * mean:+.1f} points ({100 * low:+.1f} to {100 * high:+.1f})"


def layer_name(layer: str) -> str:
    """``4`` -> ``layer 4``; ``embedding`` -> ``the embedding``."""
    return f"layer {layer}" if layer.isdecimal() else f"the {layer}"


def model_name(path: str) -> str:
    """A folder's name; of a run's bundle, the run's; of ``.``, that of the folder itself."""
    place = Path(path).resolve()
    return place.parent.name if place.name == "bundle" else place.name
