"""Speed, measured as medians and ratios in one run: ``python -m bench``. See docs/speed.md."""
