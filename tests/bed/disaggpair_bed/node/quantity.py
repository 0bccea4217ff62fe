"""Kubernetes quantities, as far as resource figures and the downward API use them."""

import math
import re
from decimal import Decimal

_SUFFIXES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}
_PATTERN = re.compile(r"([+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|[+-]?\.\d+)([A-Za-z]{0,2})")


def parse_quantity(text: str) -> Decimal:
    """The number a quantity stands for; raises ValueError on anything else."""
    match = _PATTERN.fullmatch(text)
    if match is None or match[2] not in _SUFFIXES:
        raise ValueError(f"{text!r} is not a quantity such as 500m, 4, 2Gi")
    return Decimal(match[1]) * _SUFFIXES[match[2]]


def in_units(text: str, divisor: str) -> int:
    """A quantity in whole units of `divisor`, rounded up, as `resourceFieldRef` gives it."""
    return math.ceil(parse_quantity(text) / parse_quantity(divisor if divisor != "0" else "1"))
