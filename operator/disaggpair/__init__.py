"""The command line over operator and router. Nothing imports it."""
