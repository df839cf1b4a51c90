"""How a filtered search is done: which strategy serves a filter, and what is cached for it."""
