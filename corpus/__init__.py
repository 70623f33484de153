"""Programs that benchmarks measure and tests run: unfused, with their inputs, at the sizes of papers and servers."""
