"""What was learned?"""
