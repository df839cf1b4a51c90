"""What do records in the store and cursors of lists look like?"""
