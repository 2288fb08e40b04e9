"""adagrad: one step of Adagrad (Duchi et al. 2011) against the gradient."""

import optax

from tacit.server.rules._descent import Descent


class Adagrad(Descent):
    """One step of Adagrad (Duchi et al. 2011) at a time."""

    def optimiser(self) -> optax.GradientTransformation:
        """Adagrad (Duchi et al. 2011), as optax has it."""
        return optax.adagrad(self.rate)
