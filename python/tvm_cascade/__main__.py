"""`python -m tvm_cascade`: see `tvm_cascade.cli`."""

from tvm_cascade.cli import main

raise SystemExit(main())
