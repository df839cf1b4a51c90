"""Who may call what?"""
