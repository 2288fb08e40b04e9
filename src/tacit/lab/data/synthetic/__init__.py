"""Synthetic logs of any size, generated from a seed by our own code. No person is in them.

`apps` is a log of app launches; `movies` is a rating log with user features, titles and organisations.
docs/worlds.md describes both.
"""

from tacit.lab.data.synthetic.apps import apps
from tacit.lab.data.synthetic.movies import movies

__all__ = ["apps", "movies"]
