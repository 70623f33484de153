"""Facts about expressions, read off their structure: one domain, and how each fact passes through each function.

| fact                        | asked by                                                      | file        |
|-----------------------------|---------------------------------------------------------------|-------------|
| range, and poles            | guards of references, masks, weights of narrow operands       | `extent`    |
| relation to earlier results | exponents that results bound, |x − max x|                     | `relation`  |
| location of the data        | references: whether they stand near what they are taken from  | `location`  |
| trend, and curvature        | extrema through maps                                          | `trend`     |
| weight under translation    | sums of large and small terms, what references are far from 0 | `weight`    |

`functions` has a row for each function of one number. What an expression is made of beyond that, sums, products,
powers, extrema and choices, each fact has a rule for.
"""
