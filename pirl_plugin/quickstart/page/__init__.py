"""The page that shows what a pre-training learnt."""
