"""Side-by-side measurements against other systems. Ratios within one run are what counts."""
