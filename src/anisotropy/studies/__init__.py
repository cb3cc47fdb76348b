"""One module per study: ``collect`` sees one checkpoint, ``summarise`` the collections of several."""
