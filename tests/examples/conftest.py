"""Generated ratings in both MovieLens formats, and real ones."""

from movielens_files import movielens_1m, movielens_100k, real_movielens

__all__ = ["movielens_1m", "movielens_100k", "real_movielens"]
