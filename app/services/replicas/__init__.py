"""What do other processes know?"""
