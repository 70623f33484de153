"""Products of matrices, kept whole: halves are summed in float32 and rounded once, as PyTorch does.

TVM's own converters leave float32 where PyTorch gives a half, so that the next operator fails or the model's outputs
change their dtype.
"""

from __future__ import annotations

from tvm import relax, te

from tvm_cascade.torch.site import Site, accumulator, type_name


def matmul(site: Site) -> relax.Var:
    """aten.matmul, with its broadcasting and its vectors."""
    return site.cast(_product(site, site["self"], site["other"]), site.dtype)


def mm(site: Site) -> relax.Var:
    """aten.mm and aten.bmm."""
    return site.cast(_product(site, site["self"], site["mat2"]), site.dtype)


def mv(site: Site) -> relax.Var:
    """aten.mv."""
    return site.cast(_product(site, site["self"], site["vec"]), site.dtype)


def addmm(site: Site) -> relax.Var:
    """beta · input + alpha · mat1 · mat2."""
    return _added(site, _product(site, site["mat1"], site["mat2"]))


def baddbmm(site: Site) -> relax.Var:
    """beta · input + alpha · batch1 · batch2."""
    return _added(site, _product(site, site["batch1"], site["batch2"]))


def linear(site: Site) -> relax.Var:
    """x·Wᵀ + b, which reads the weight as it is stored."""
    x, weight, bias = site["input"], site["weight"], site["bias"]
    wide = accumulator(type_name(x))

    def formula(a: te.Tensor, w: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, w.shape[1]), "k")
        shape = (*a.shape[:-1], w.shape[0])
        return te.compute(
            shape, lambda *i: te.sum(a(*i[:-1], k).astype(wide) * w(i[-1], k).astype(wide), axis=k), name="linear"
        )

    summed = site.compute(formula, x, weight, name="linear")
    if bias is not None:
        summed = site.emit(relax.op.add(summed, site.cast(bias, wide)))
    return site.cast(summed, site.dtype)


def _product(site: Site, left: relax.Expr, right: relax.Expr) -> relax.Var:
    return site.emit(relax.op.matmul(left, right, out_dtype=accumulator(type_name(left))))


def _added(site: Site, product: relax.Var) -> relax.Var:
    wide, alpha, beta = type_name(product), site["alpha"], site["beta"]
    if alpha != 1:
        product = site.emit(relax.op.multiply(product, relax.const(alpha, wide)))
    if beta != 0:
        added = site.cast(site["self"], wide)
        if beta != 1:
            added = site.emit(relax.op.multiply(added, relax.const(beta, wide)))
        product = site.emit(relax.op.add(product, added))
    return site.cast(product, site.dtype)
