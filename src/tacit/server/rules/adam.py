"""adam: one step of Adam (Kingma and Ba 2015) against the gradient."""

import optax

from tacit.server.rules._descent import Descent


class Adam(Descent):
    """One step of Adam (Kingma and Ba 2015) at a time."""

    def optimiser(self) -> optax.GradientTransformation:
        """Adam (Kingma and Ba 2015), as optax has it."""
        return optax.adam(self.rate)
