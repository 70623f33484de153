"""Facts about expressions, read off their structure: one domain, and how each fact passes through each function.

| fact                        | asked by                                                      | file        |
|-----------------------------|---------------------------------------------------------------|-------------|
| range, and poles            | guards of references, masks, weights of narrow operands       | `extent`    |
| trend, and curvature        | extrema through maps                                          | `trend`     |

`functions` has a row for each function of one number. What an expression is made of beyond that, sums, products,
powers, extrema and choices, each fact has a rule for.
"""
