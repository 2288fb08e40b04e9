"""yogi: one step of Yogi (Zaheer et al. 2018) against the gradient."""

import optax

from tacit.server.rules._descent import Descent


class Yogi(Descent):
    """One step of Yogi (Zaheer et al. 2018) at a time."""

    def optimiser(self) -> optax.GradientTransformation:
        """Yogi (Zaheer et al. 2018), as optax has it."""
        return optax.yogi(self.rate)
