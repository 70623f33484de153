"""S-TIR to cascades: which reductions of a function form one, over which domain, of which elements."""
