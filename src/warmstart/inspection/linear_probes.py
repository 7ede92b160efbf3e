"""Multinomial logistic regression on hidden states or on a learned mix of them, fitted to convergence by L-BFGS.

The loss of n items is their mean cross-entropy, plus ``|W|^2 / (2 C n)`` with scikit-learn's C, plus half a pseudo-item of every
class at the mean of the states, seen through the bias alone. A probe that finds nothing therefore predicts what Krichevsky and
Trofimov (1981) do, ``(n_c + 1/2) / (n + C/2)``, and a class that no item has keeps a finite code. C is chosen on validation.

L-BFGS runs in coordinates in which the loss is round at the origin: there its Hessian is ``(I - 1/C) x X'X / (n C) + I / (C n)``
for weights of 0, whose Cholesky factor changes the coordinates. It needs tens of steps where plain gradients need thousands. X of a
mix are the mixed states, so its coordinates are computed anew after every few steps, which saves a third to two thirds of them.

Letters: N items, R representations, D width, C classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

PROBE_STRENGTHS = tuple(10.0**power for power in range(-4, 5))
"""scikit-learn's C, from the strongest penalty to the weakest"""
_MARGIN = 0.1
"""nats on validation, as a fraction of those of a uniform code, by which a fit must be worse than the best to end the path"""
_TOLERANCE = {"maxfun": 1000, "maxcor": 20, "ftol": 1e-5, "gtol": 1e-5}
_STEPS, _ROUNDS, _STEPS_OF_A_ROUND = 500, 40, 15
"""at most: for one layer; for a mix, between two changes of coordinates"""


@dataclass(frozen=True)
class LinearProbe:
    """The weights of one fitted probe."""

    mix: Tensor
    """(R,) logits of the weights of the representations"""
    weight: Tensor
    """(D, C)"""
    bias: Tensor
    """(C,)"""
    converged: bool = True
    """whether L-BFGS came to its end before it ran out of steps"""

    def logits(self, states: Tensor) -> Tensor:
        """(N, C) of states (R, N, D)."""
        return torch.tensordot(self.mix.softmax(dim=0), states, dims=1) @ self.weight + self.bias

    def losses(self, states: Tensor, labels: Tensor) -> Tensor:
        """(N,) cross-entropy in nats of labels (N,) given states (R, N, D)."""
        return torch.nn.functional.cross_entropy(self.logits(states), labels, reduction="none")


def fit_linear_probe(train: tuple[Tensor, Tensor], validation: tuple[Tensor, Tensor], classes: int) -> LinearProbe:
    """The probe whose penalty gives the lowest cross-entropy on validation; ``train`` is states (R, N, D) and labels (N,).

    From the strongest penalty to the weakest, every fit starts where the one before ended, with an equal mix. A path ends when
    validation is far worse than at its best, not when it is first worse: if large directions of the states are noise and small ones
    tell the label, validation becomes worse before it becomes better.
    """
    problem, margin = _Problem(*train, classes), _MARGIN * math.log(classes)
    point = np.zeros(problem.size)
    fitted = list[tuple[float, LinearProbe]]()
    for strength in PROBE_STRENGTHS:
        point, probe = problem.fit(point, strength)
        fitted.append((float(probe.losses(*validation).mean()), probe))
        if fitted[-1][0] > min(loss for loss, _ in fitted) + margin:
            break
    return min(fitted, key=lambda one: one[0])[1]


class _Problem:
    """The loss of one probe. A point is the bias (C,), the logits of the mix (R,) if R > 1, and the weights (C, D), flat.

    Logits and errors are (C, N): for few classes their products with the states take a fifth of the time that those of (N, C) do.
    """

    def __init__(self, states: Tensor, labels: Tensor, classes: int) -> None:
        self.mean = states.mean(dim=1)  # (R, D)
        self.states, self.labels, self.classes = states - self.mean[:, None], labels, classes
        self.layers, self.count, self.width = states.shape
        self.mixed, self.items = self.layers > 1, torch.arange(self.count)
        self.size = classes + self.layers * self.mixed + self.width * classes
        self.penalty = 0.0
        self.factor = torch.eye(self.width)  # (D, D)
        self.gram = self._gram(torch.full((self.layers,), 1 / self.layers, dtype=states.dtype))  # (D, D) of an equal mix

    def fit(self, point: np.ndarray, strength: float) -> tuple[np.ndarray, LinearProbe]:
        """The minimum for C = ``strength`` from the parameters ``point``, and its probe."""
        self.penalty, head = 1 / (strength * self.count), self.size - self.width * self.classes
        end, gram = point.copy(), self.gram
        end[self.classes : head] = 0  # under a strong penalty a mix tends to one layer, from which it would not come back
        for _ in range(_ROUNDS if self.mixed else 1):
            end, converged = self._descend(end, gram, _STEPS_OF_A_ROUND if self.mixed else _STEPS)
            bias, mix, weight = self._parameters(end)
            if converged:
                break
            gram = self._gram(mix.softmax(dim=0))
        return end, LinearProbe(mix, weight.T.contiguous(), bias - weight @ (mix.softmax(dim=0) @ self.mean), converged)

    def _descend(self, point: np.ndarray, gram: Tensor, steps: int) -> tuple[np.ndarray, bool]:
        """At most ``steps`` of L-BFGS from ``point``, in coordinates that make ``gram`` round: the end, and if it converged."""
        lower = torch.linalg.cholesky(gram + self.penalty * torch.eye(self.width))
        inverse = torch.linalg.solve_triangular(lower, torch.eye(self.width, dtype=lower.dtype), upper=False)
        self.factor = inverse.to(self.states.dtype)
        start, head = point.copy(), self.size - self.width * self.classes
        start[head:] = (torch.from_numpy(point[head:]).view(-1, self.width) @ lower).flatten()
        result = minimize(self.loss, start, jac=True, method="L-BFGS-B", options=_TOLERANCE | {"maxiter": steps})
        end = result.x
        end[head:] = (self._parameters(end)[2] @ self.factor).flatten()
        return end, result.nit < steps

    def loss(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        """The loss at ``point``, whose weights are in the coordinates of ``factor``, and its gradient."""
        bias, mix, weight = self._parameters(point)
        weight = weight @ self.factor
        shares = mix.softmax(dim=0)
        states = self._mixed_states(shares)
        logs = torch.addmm(bias[:, None], weight, states.T).log_softmax(dim=0)  # (C, N)
        alone = bias.log_softmax(dim=0)  # (C,)
        nats = -logs[self.labels, self.items].sum(dtype=torch.float64) - alone.sum() / 2
        errors = logs.exp_()
        errors[self.labels, self.items] -= 1
        errors /= self.count
        of_bias = errors.sum(dim=1) + (alone.exp() * self.classes - 1) / (2 * self.count)
        of_weight = (errors @ states + self.penalty * weight) @ self.factor.T
        gradients = [of_bias, of_weight.flatten()]
        if self.mixed:
            of_shares = self.states.flatten(1) @ (errors.T @ weight).flatten()  # (R,)
            gradients.insert(1, shares * (of_shares - shares @ of_shares))
        total = float(nats) / self.count + self.penalty / 2 * float(weight.square().sum())
        return total, torch.cat(gradients).double().numpy()

    def _gram(self, shares: Tensor) -> Tensor:
        """(D, D) float64, the Hessian of the cross-entropy at weights of 0 but for a factor near 1."""
        states = self._mixed_states(shares).double()
        return states.T @ states / (self.count * self.classes)

    def _mixed_states(self, shares: Tensor) -> Tensor:
        """(N, D) for the weights ``shares`` (R,) of the representations."""
        return torch.mv(self.states.flatten(1).T, shares).view(self.count, -1) if self.mixed else self.states[0]

    def _parameters(self, point: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
        values = torch.from_numpy(point).to(self.states.dtype)
        layers = self.layers * self.mixed
        bias, mix, weight = values.split([self.classes, layers, self.width * self.classes])
        return bias, mix if self.mixed else torch.zeros(1, dtype=values.dtype), weight.view(-1, self.width)
