"""What should others measure next?"""
