"""The way from a name to a page: parameters, sessions, the notebook gate, the workflow, the site."""
