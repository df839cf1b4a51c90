"""What was decided and learned, as files that other tools read?"""
