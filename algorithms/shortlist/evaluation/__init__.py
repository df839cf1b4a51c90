"""What would another policy have earned, and is one group really better than another?"""
