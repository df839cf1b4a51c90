"""Which arm now?"""
