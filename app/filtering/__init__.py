"""How a filtered search is done: which strategy, and what is made for a filter."""
