"""The keys that sign grants and waitpoint tokens.

seed_waitpoint_hmac_secret        the first key
rotate_waitpoint_hmac_secret_all  another key signs
list_waitpoint_hmac_kids          the ids of the keys
key                               a key, its checks and its signature
"""
