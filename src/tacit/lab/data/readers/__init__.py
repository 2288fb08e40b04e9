"""Readers: public logs as their owners publish them, one file for each family. None ships with the package."""

from tacit.lab.data.readers.apps import app_usage as app_usage
from tacit.lab.data.readers.apps import frappe as frappe
from tacit.lab.data.readers.apps import lsapp as lsapp
from tacit.lab.data.readers.foursquare import foursquare as foursquare
from tacit.lab.data.readers.mooccube import mooccube as mooccube
from tacit.lab.data.readers.movielens import movielens as movielens
from tacit.lab.data.readers.movielens import movielens_1m as movielens_1m
from tacit.lab.data.readers.movielens import movielens_100k as movielens_100k
from tacit.lab.data.readers.movietweetings import moviedata as moviedata
from tacit.lab.data.readers.movietweetings import movietweetings as movietweetings
