"""Programs that show speed and memory, one for each row of the budget, as ratios beside a baseline in the same run."""
