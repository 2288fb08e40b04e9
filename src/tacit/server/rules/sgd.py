"""sgd: gradient descent, with optional momentum."""

import optax

from tacit.core.settings import setting
from tacit.server.rules._descent import Descent


class GradientDescent(Descent):
    """params − rate · gradient; with `momentum` β, params − rate · m, where m ← β·m + gradient."""

    momentum: float | None = setting(None, above=0.0, at_most=0.999)

    @property
    def moves_rows(self) -> bool:
        """Without decay and without momentum, which move rows that were not sent."""
        return self.decay == 0 and self.momentum is None

    def optimiser(self) -> optax.GradientTransformation:
        """Plain gradient descent."""
        return optax.sgd(self.rate, self.momentum)
