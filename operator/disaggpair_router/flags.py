"""A command line that says what is wrong with it in one sentence. The standard library only."""

import argparse
from collections.abc import Sequence
from typing import NoReturn


class FlagParser(argparse.ArgumentParser):
    """Ends the process with one sentence and status 2 where argparse would show its usage."""

    def error(self, message: str) -> NoReturn:
        """See argparse.ArgumentParser."""
        self.exit(2, f"{self.prog}: {message.rstrip('.')}.\n")

    def refuse_unknown(self, words: Sequence[str]) -> None:
        """End the process if words were left that no flag took."""
        if words:
            self.error(f"{words[0]} is not known: {self.prog} --help lists what is")
