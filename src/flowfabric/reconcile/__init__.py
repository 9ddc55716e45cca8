"""Recovery: sweeps that run periodically in every worker.

sweeps  the table of sweeps: what each one does, how often, how many rows at a time
loop    runs the sweeps of the table until cancelled
"""
