"""Programs that measure speed and memory, one for each row of the budget. Each program gives ratios to a baseline that
is measured in the same run."""
