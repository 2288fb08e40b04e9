"""Methods: one file each, file name = method name."""
