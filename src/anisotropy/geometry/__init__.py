"""Arrays in, numbers out: moments, isotropy, subspaces, dimension; knows no model and no text."""
