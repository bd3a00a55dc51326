"""From an image file to a batch: source, decoder, views, transforms, collator.

A sample travels ``source`` → ``transforms`` (which call ``views``) → ``collator``. Only
``transforms`` knows the host; everything else runs and is tested without it.
"""
