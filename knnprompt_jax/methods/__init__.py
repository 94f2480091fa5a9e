"""Every method behind one interface, in scikit-learn's words; a file per method."""
