"""How arms are kept in Milvus, and found there."""
