"""The way back to the readers: folds each watched chat once and hands the same bytes to everyone who watches."""
