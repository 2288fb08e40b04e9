"""Settings of the synthetic app-launch logs: every constant of the generating process, fitted once and frozen."""

from dataclasses import dataclass

import numpy as np

from tacit.errors import DataError, unknown

# Launches per app of LSApp by rank r among N apps, as a Zipf law with an exponential end: r^-SLOPE · exp(-r / (END·N)).
SLOPE, END = 0.443, 0.258


@dataclass(frozen=True)
class AppsSettings:
    """One launch log: installation, preference, times of use and transitions."""

    apps: int = 87  # apps in the catalog
    span: int = 70  # calendar days from the first to the last of the log
    # Installed apps: the n largest of installs·log(popularity) + Gumbel noise.
    n_median: float = 24.865  # lognormal, clipped to n_least .. n_most
    n_spread: float = 0.4
    n_least: int = 5
    n_most: int = 40
    tiny: float = 0.065  # share of people with two apps only
    installs: float = 0.55  # power of popularity in what is installed
    late: float = 0.2  # share of a person's apps that appear on a later day
    # Preference: eta · log gamma(focus·n·base/2 + .15), base ∝ popularity^favour over the installed apps.
    focus: float = 4.597
    favour: float = 0.621
    eta: float = 2.41
    eta_spread: float = 0.261  # lognormal spread of eta between people
    favourite: float = 0.945  # what is added to the preference of the app liked best
    drift: float = 0.054  # daily noise of the preference; each day .97 of the last day's departure remains
    rhythm: float = 0.383  # how far the four parts of the day differ, on the log scale
    # Bursts: stay with probability sigmoid(stay + stay_liked·preference + stay_app·N(0,1) + stay_person·N(0,1)).
    stay: float = -0.138
    stay_liked: float = 0.16
    stay_app: float = 0.5
    stay_person: float = 1.015
    # Return: else, with probability `back`, to an earlier app of the session, geometric over the most recent first.
    back: float = 0.362
    back_first: float = 0.582
    # Transition: else by preference, rhythm, links shared by everybody and links of one's own.
    shared_rank: float = 0.476  # scale of the rank-6 part
    shared_links: float = 1.895  # strength of the sparse links
    links: int = 3  # sparse links of each app
    own_links: float = 0.69  # spread of a person's own departures from the shared links
    # Sessions: lengths lognormal; part of the spread is between people.
    length_median: float = 12.0
    length_spread: float = 1.71
    length_between: float = 0.4
    length_most: int = 400
    sessions: float = 7.0  # sessions of an active day, median over people
    sessions_between: float = 0.8  # lognormal spread between people
    sessions_most: int = 24
    days_median: float = 14.0  # active days of a person, lognormal, spread over the whole span
    days_spread: float = 0.5


SETTINGS = {
    "strong": AppsSettings(),
    "weak": AppsSettings(
        n_median=31.4,
        own_links=1.183,
        tiny=0.072,
        focus=5.457,
        favour=0.614,
        eta=2.774,
        eta_spread=0.319,
        stay=0.03,
        stay_liked=0.107,
        stay_person=0.906,
        back=0.326,
        back_first=0.638,
        favourite=1.047,
        drift=0.061,
        shared_rank=0.441,
        shared_links=0.681,
        rhythm=0.475,
    ),
    "apps500": AppsSettings(
        apps=500,
        span=8,
        n_most=100,
        tiny=0.0,
        rhythm=0.35,
        links=5,
        length_median=5.15,
        length_spread=1.2,
        length_most=150,
        sessions=8.3,
        sessions_between=0.6,
        days_median=7.0,
        days_spread=0.01,
        favourite=0.0,
        n_median=63.752,
        own_links=0.073,
        focus=1.271,
        favour=1.463,
        eta=1.463,
        eta_spread=0.142,
        stay=-0.952,
        stay_liked=0.07,
        stay_person=0.341,
        back=0.499,
        back_first=0.81,
        shared_rank=1.814,
        shared_links=2.535,
        stay_app=1.026,
        length_between=0.326,
        installs=1.567,
        drift=0.228,
    ),
}


def apps_settings(name: str) -> AppsSettings:
    """A setting by name.

    >>> apps_settings("weak").apps
    87
    """
    if name not in SETTINGS:
        raise DataError(unknown("apps", name, SETTINGS))
    return SETTINGS[name]


def app_popularity(apps: int) -> np.ndarray:
    """Share of launches of each rank, most popular first.

    >>> app_popularity(87)[[0, 9, 59]].round(3).tolist()
    [0.124, 0.03, 0.001]
    """
    rank = np.arange(1, apps + 1)
    weight = rank**-SLOPE * np.exp(-rank / (END * apps))
    return weight / weight.sum()
