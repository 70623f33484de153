"""The axes of register tiles of a product, by the axes of its operands."""

from __future__ import annotations

import pytest

from tvm_cascade.transform.nest_cost import product_axes

# name: operands, lanes, outputs -> operands along the lanes and axes for rows, or None
PRODUCTS: dict[str, tuple[list[str], str, str, tuple[tuple[int, ...], str] | None]] = {
    "a matrix times a matrix": (["ik", "kj"], "j", "ij", ((1,), "i")),
    "the other operand in lanes": (["ik", "kj"], "i", "ij", ((0,), "j")),
    "each of a batch": (["bik", "bkj"], "j", "bij", ((1,), "i")),
    "one operand for a batch": (["bik", "kj"], "j", "bij", ((1,), "bi")),
    "a sum in a row": (["ik"], "i", "i", None),
    "a matrix times a vector": (["ik", "k"], "i", "i", None),
    "factors of which one has all axes": (["ik", "kj", "ijk"], "j", "ij", ((1, 2), "i")),
    "no operand along the lanes": (["ik", "k"], "j", "ij", None),
    "rows outside of the nest": (["ik", "kj"], "j", "j", None),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_rows_are_axes_along_which_what_is_in_lanes_is_read_again(name: str) -> None:
    operands, lanes, outputs, wanted = PRODUCTS[name]
    found = product_axes([set(axes) for axes in operands], lanes, outputs)
    assert (found and (found.along, "".join(found.rows))) == wanted
