"""Classifiers of users' own texts with the scikit-learn API, saved, explained and chosen by their own anchors."""
