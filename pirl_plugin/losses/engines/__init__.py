"""How a batch's scores against the bank are summed: ``plain``, ``blocked`` or ``triton``.

``choice.make_engine`` chooses one; ``base.Engine`` says what one is. ``plain`` holds all scores;
the other two stream the drawn rows.
"""
