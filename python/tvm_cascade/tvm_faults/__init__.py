"""What exists only because TVM is wrong: a file a fault; `table` says in which releases, and tests reproduce each."""
