"""Every method behind one interface, in scikit-learn's words."""
