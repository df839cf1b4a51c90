"""How often may an arm still be shown?"""
