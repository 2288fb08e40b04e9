"""Rules: how an estimate moves the parameters. One file is one rule, named as the file; helpers start with an underscore."""
