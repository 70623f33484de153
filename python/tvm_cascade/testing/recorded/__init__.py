"""Functions that another project's tests build, recorded while the tests run, and a trial of each of them."""
