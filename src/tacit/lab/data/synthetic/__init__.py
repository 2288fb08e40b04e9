"""Synthetic logs of any size, generated from a seed by our own code. No person is in them.

`apps` is a launch log of telephones; `movies` is a rating log of people, features, titles and organisations.
Their pages are in docs/synthetic-data.md.
"""

from tacit.lab.data.synthetic.apps import apps
from tacit.lab.data.synthetic.movies import movies

__all__ = ["apps", "movies"]
