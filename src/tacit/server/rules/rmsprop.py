"""rmsprop: one step of RMSProp (Hinton 2012) against the gradient."""

import optax

from tacit.server.rules._descent import Descent


class RMSProp(Descent):
    """One step of RMSProp (Hinton 2012) at a time."""

    def optimiser(self) -> optax.GradientTransformation:
        """RMSProp (Hinton 2012), as optax has it."""
        return optax.rmsprop(self.rate)
