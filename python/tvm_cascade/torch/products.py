"""Products of matrices, kept whole: halves are summed in float32 and rounded once, as PyTorch does.

TVM's own converters leave float32 where PyTorch gives a half, so that the next operator fails or the model's outputs
change their dtype.
"""

from __future__ import annotations

from tvm import relax, te

from tvm_cascade.torch.precision import operands_in_float32, rounded
from tvm_cascade.torch.site import Site, accumulator, of_each_axis, type_name


def matmul(site: Site) -> relax.Var:
    """aten.matmul, with its broadcasting and its vectors."""
    return site.cast(_product(site, site["self"], site["other"]), site.dtype)


def mm(site: Site) -> relax.Var:
    """aten.mm and aten.bmm."""
    return site.cast(_product(site, site["self"], site["mat2"]), site.dtype)


def addmm(site: Site) -> relax.Var:
    """beta · input + alpha · mat1 · mat2."""
    product = _product(site, site["mat1"], site["mat2"])
    wide, alpha, beta = type_name(product), site["alpha"], site["beta"]
    if alpha != 1:
        product = site.emit(relax.op.multiply(product, relax.const(alpha, wide)))
    if beta != 0:
        added = site.cast(site["self"], wide)
        if beta != 1:
            added = site.emit(relax.op.multiply(added, relax.const(beta, wide)))
        product = site.emit(relax.op.add(product, added))
    return site.cast(product, site.dtype)


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


def convolution(site: Site) -> relax.Var:
    """aten.convolution along one to three axes; transposed ones are TVM's own."""
    if site["transposed"]:
        with operands_in_float32(site):
            return rounded(site, site.importer.create_convert_map()["convolution.default"](site.node))
    x, weight, bias = site["input"], site["weight"], site["bias"]
    wide, axes = accumulator(type_name(x)), weight.ty.ndim - 2
    strides, padding, dilation = (of_each_axis(site[name], axes) for name in ("stride", "padding", "dilation"))
    convolve = (relax.op.nn.conv1d, relax.op.nn.conv2d, relax.op.nn.conv3d)[axes - 1]
    summed = site.emit(convolve(x, weight, strides, padding, dilation, site["groups"], out_dtype=wide))
    if bias is not None:
        channels = site.emit(relax.op.reshape(site.cast(bias, wide), (1, -1, *[1] * axes)))
        summed = site.emit(relax.op.add(summed, channels))
    return site.cast(summed, site.dtype)


def _product(site: Site, left: relax.Expr, right: relax.Expr) -> relax.Var:
    return site.emit(relax.op.matmul(left, right, out_dtype=accumulator(type_name(left))))
