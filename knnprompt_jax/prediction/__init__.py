"""Labels for files of any length: rows are read, classified and written batch by batch, and a run that died goes on."""
