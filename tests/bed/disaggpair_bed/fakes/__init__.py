"""Fakes of what the packages talk to, for tests without that other side."""
