"""Readers: public logs as their owners publish them, one file for each family. None ships with the package."""

from tacit.lab.data.sources.apps import app_usage as app_usage
from tacit.lab.data.sources.apps import frappe as frappe
from tacit.lab.data.sources.apps import lsapp as lsapp
from tacit.lab.data.sources.foursquare import foursquare as foursquare
from tacit.lab.data.sources.mooccube import mooccube as mooccube
from tacit.lab.data.sources.movielens import movielens as movielens
from tacit.lab.data.sources.movielens import movielens_1m as movielens_1m
from tacit.lab.data.sources.movielens import movielens_100k as movielens_100k
from tacit.lab.data.sources.movietweetings import moviedata as moviedata
from tacit.lab.data.sources.movietweetings import movietweetings as movietweetings
