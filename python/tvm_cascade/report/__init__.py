"""Reports to users: verdicts, reasons and formulas, as objects, text, JSON and HTML."""
