"""Generated ratings in both MovieLens formats."""

from movielens_files import movielens_1m, movielens_100k

__all__ = ["movielens_1m", "movielens_100k"]
