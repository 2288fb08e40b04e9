"""lamb: one step of LAMB (You et al. 2020) against the gradient."""

import optax

from tacit.server.rules._descent import Descent


class Lamb(Descent):
    """One step of LAMB (You et al. 2020) at a time."""

    def optimiser(self) -> optax.GradientTransformation:
        """LAMB (You et al. 2020), as optax has it."""
        return optax.lamb(self.rate)
