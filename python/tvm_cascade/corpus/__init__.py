"""Programs that the commands know by name and tests run: unfused, with their inputs, and checks of them."""
