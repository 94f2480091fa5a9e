"""For people with their own texts: a classifier in scikit-learn's words, saved, explained and chosen by its own anchors."""
