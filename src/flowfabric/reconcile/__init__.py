"""Recovery: sweeps that one worker of a fleet runs periodically.

sweeps          the table of sweeps: what each one does, how often, how many rows at a time
find_due        whether this process sweeps for the fleet, and which sweeps have due rows
find_free_role  whether a process without a role is needed
release_role    a process that stops leaves its role to another one
loop            looks for what is due, and runs those sweeps, until cancelled
"""
