"""Kubernetes quantities as numbers. Pure."""

import re
from decimal import Decimal
from typing import Final

_UNITS: Final = {
    "m": Decimal("0.001"),
    "k": Decimal(10) ** 3,
    "M": Decimal(10) ** 6,
    "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12,
    "P": Decimal(10) ** 15,
    "Ki": Decimal(2) ** 10,
    "Mi": Decimal(2) ** 20,
    "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40,
    "Pi": Decimal(2) ** 50,
}


def amount(text: str) -> Decimal:
    """A quantity as a number.

    Raises:
        ValueError: not a quantity such as 8, 500m or 2Ti.
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(m|[kMGTP]|[KMGTP]i)?", text)
    if not found:
        raise ValueError(f"{text!r} is not a quantity such as 8, 500m or 2Ti")
    return Decimal(found[1]) * _UNITS.get(found[2], Decimal(1))
