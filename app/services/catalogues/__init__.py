"""Which arms are there?"""
