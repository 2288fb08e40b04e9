"""Plans: the built-in TOML files, the loader, and the folder that a deployment installs."""
