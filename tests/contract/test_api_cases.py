"""The models accept and refuse the table of objects; tests/cluster feeds the same to a server."""

import pytest

from disaggpair_bed.builders import raw_pair
from disaggpair_bed.pair_cases import ACCEPTED, CASES, OWNED, REFUSED, Case
from disaggpair_operator.api.parse import parse
from disaggpair_operator.api.v1alpha1 import DisaggPair


def test_every_case_has_a_name_of_its_own() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: case.name)
def test_the_models_accept(case: Case) -> None:
    assert isinstance(parse(raw_pair(case.changes)), DisaggPair)


@pytest.mark.parametrize("case", [*REFUSED, *OWNED], ids=lambda case: case.name)
def test_the_models_refuse_and_name_the_field(case: Case) -> None:
    faults = parse(raw_pair(case.changes))
    assert isinstance(faults, list)
    named = [fault for fault in faults if fault.path.startswith(case.field)]
    assert named, [str(fault) for fault in faults]
    assert all(fault.path.split("[")[0] in fault.message for fault in named)
    assert any(case.says in fault.message for fault in named), [str(fault) for fault in named]
