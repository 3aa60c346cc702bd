"""The move of one dataset (queue ``moves``): what happens, written against ports.

Responsible for: the state machine, the look at both names, place and retire.
Must not know: SQL, pyiceberg, HTTP, Celery.
"""
