"""Label files of any length: rows are read, classified and written batch by batch."""
