"""Generated ratings in MovieLens format, and real ones."""

from movielens_files import movielens_100k, real_movielens

__all__ = ["movielens_100k", "real_movielens"]
