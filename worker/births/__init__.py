"""Writes that are born in place (queue ``births``)."""
