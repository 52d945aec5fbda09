"""What engramma brings back, measured on questions whose evidence is known: ``python -m evals``. See docs/evaluation.md."""
