"""Is the service well?"""
