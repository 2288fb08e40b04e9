"""A deployed run at the server: enrolment, cohorts, the inbox, the round loop over Flower."""
