from dataclasses import replace

import pytest

from disaggpair_connector.descriptors import LayerMemory, Rows, rows_of

BLOCKS = 10
PAGE = 64
LAYERS = 4
STORAGE = 1 << 30


def packed(layers: int = LAYERS, padding: int = 0) -> list[LayerMemory]:
    row = layers * PAGE + padding
    return [
        LayerMemory(STORAGE, BLOCKS * row, STORAGE + layer * PAGE, row, PAGE)
        for layer in range(layers)
    ]


def test_layers_side_by_side_are_rows() -> None:
    assert rows_of(packed(), BLOCKS) == Rows(BLOCKS, LAYERS * PAGE)


def test_the_order_of_the_layers_does_not_matter() -> None:
    assert rows_of(reversed(packed()), BLOCKS) == Rows(BLOCKS, LAYERS * PAGE)


def test_padding_at_the_end_of_a_row_belongs_to_the_row() -> None:
    assert rows_of(packed(padding=32), BLOCKS) == Rows(BLOCKS, LAYERS * PAGE + 32)


def test_pages_of_two_sizes_make_rows() -> None:
    wide = replace(packed()[3], page_bytes=2 * PAGE)
    row = 5 * PAGE
    layers = [
        replace(layer, storage_bytes=BLOCKS * row, block_stride=row)
        for layer in (*packed()[:3], wide)
    ]
    assert rows_of(layers, BLOCKS) == Rows(BLOCKS, row)


def test_one_layer_after_the_other_is_not_rows() -> None:
    by_layer = [
        LayerMemory(STORAGE, LAYERS * BLOCKS * PAGE, STORAGE + layer * BLOCKS * PAGE, PAGE, PAGE)
        for layer in range(LAYERS)
    ]
    assert rows_of(by_layer, BLOCKS) is None


def test_layers_with_allocations_of_their_own_are_not_rows() -> None:
    apart = [
        LayerMemory(STORAGE * layer, BLOCKS * PAGE, STORAGE * layer, PAGE, PAGE)
        for layer in range(1, LAYERS)
    ]
    assert rows_of(apart, BLOCKS) is None


def test_layers_that_share_memory_are_not_rows() -> None:
    layers = packed()
    shared = [*layers[:3], replace(layers[3], start=layers[2].start)]
    assert rows_of(shared, BLOCKS) is None


def test_a_layer_that_reaches_beyond_the_row_is_no_part_of_it() -> None:
    layers = packed()
    assert rows_of([*layers[:3], replace(layers[3], page_bytes=PAGE + 1)], BLOCKS) is None


@pytest.mark.parametrize("storage_bytes", [BLOCKS * LAYERS * PAGE - 1, BLOCKS * LAYERS * PAGE + 1])
def test_an_allocation_that_holds_anything_else_is_not_rows(storage_bytes: int) -> None:
    layers = [replace(layer, storage_bytes=storage_bytes) for layer in packed()]
    assert rows_of(layers, BLOCKS) is None


def test_another_stride_is_not_rows() -> None:
    layers = packed()
    assert rows_of([*layers[:3], replace(layers[3], block_stride=PAGE)], BLOCKS) is None


def test_an_empty_page_is_not_rows() -> None:
    layers = packed()
    assert rows_of([replace(layers[0], page_bytes=0), *layers[1:]], BLOCKS) is None


@pytest.mark.parametrize("layers", [0, 1])
def test_less_than_two_layers_need_no_rows(layers: int) -> None:
    assert rows_of(packed(layers) if layers else [], BLOCKS) is None


def test_no_blocks_are_no_rows() -> None:
    assert rows_of(packed(), 0) is None
