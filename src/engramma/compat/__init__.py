"""Other memory systems' classes over engramma, for scripts that were written for them."""
