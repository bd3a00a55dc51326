"""From an image file to a batch: source, decoder, views, data set, collate function.

``ImageDataset`` joins a source and views; ``collate_views`` makes a batch of its samples. VISSL
reaches the same parts through the adapters ``sources.vissl_source``, ``vissl_transforms`` and
``vissl_collator``; nothing else here needs it.
"""
