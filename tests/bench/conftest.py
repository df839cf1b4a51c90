"""Generated ratings in MovieLens format."""

from movielens_files import movielens_100k

__all__ = ["movielens_100k"]
